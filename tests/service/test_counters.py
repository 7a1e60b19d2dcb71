"""`/metrics`: the names that were promised, in the format that Prometheus reads."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from served import service_here, talk

from calibeat._version import __version__
from calibeat.service.counters import BucketCounts, EngineCounters, metrics_text
from calibeat.service.store.queries import Totals

PROMISED = {
    "calibeat_forecasts_total": "counter",
    "calibeat_outcomes_total": "counter",
    "calibeat_outcomes_rejected_total": "counter",
    "calibeat_pending": "gauge",
    "calibeat_oldest_pending_seconds": "gauge",
    "calibeat_commit_seconds": "histogram",
    "calibeat_group_size": "histogram",
    "calibeat_log_loss": "gauge",
    "calibeat_alarms_total": "counter",
    "calibeat_http_requests_total": "counter",
    "calibeat_http_request_seconds": "histogram",
    "calibeat_build_info": "gauge",
    "calibeat_store_up": "gauge",
    "process_cpu_seconds_total": "counter",
    "process_resident_memory_bytes": "gauge",
    "process_start_time_seconds": "gauge",
    "process_open_fds": "gauge",
    "process_max_fds": "gauge",
}


def samples(text: str) -> dict[str, float]:
    """Every sample by its name and labels, as Prometheus's own library reads them."""
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for family in text_string_to_metric_families(text):
        kinds[family.name + "_total" * (family.type == "counter")] = family.type
        for name, labels, value, *_ in family.samples:
            inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
            key = f"{name}{{{inside}}}" if labels else name
            assert key not in found
            found[key] = value
    assert kinds.items() >= PROMISED.items()
    return found


def test_the_numbers_of_a_service(tmp_path: Path) -> None:
    with service_here(tmp_path / "calibeat.db") as url, httpx.Client(base_url=url) as http:
        events = [{"stream": f"s{i}", "id": f"e{i}", "score": 0.9} for i in range(10)]
        http.post("/v1/forecasts", json={"events": events})
        http.post("/v1/forecasts", json=events[0])
        for i in range(4):
            http.post("/v1/outcomes", json={"stream": f"s{i}", "id": f"e{i}", "outcome": 1})
        http.post("/v1/outcomes", json={"stream": "s0", "id": "e0", "outcome": 0})
        http.post("/v1/outcomes", json={"stream": "s0", "id": "nobody", "outcome": 0})
        http.post("/v1/outcomes", json={})
        answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = samples(answer.text)
    assert found["calibeat_forecasts_total"] == 10
    assert found["calibeat_forecasts_repeated_total"] == 1
    assert found["calibeat_outcomes_total"] == 4
    assert found['calibeat_outcomes_rejected_total{reason="conflict"}'] == 1
    assert found['calibeat_outcomes_rejected_total{reason="unknown"}'] == 1
    assert found['calibeat_requests_refused_total{code="invalid"}'] == 1
    assert found["calibeat_pending"] == 6
    assert found["calibeat_streams"] == 10
    assert 0 <= found["calibeat_oldest_pending_seconds"] < 600
    assert found["calibeat_group_size_sum"] == 17
    assert found["calibeat_commit_seconds_count"] >= 5
    assert found['calibeat_log_loss{kind="raw"}'] > 0
    assert not any("s1" in name for name in found)  # never a series for each stream


def test_requests_by_route_method_and_status(tmp_path: Path) -> None:
    with service_here(tmp_path / "calibeat.db") as url, httpx.Client(base_url=url) as http:
        event = {"stream": "paris/orly", "id": "a", "score": 0.5}
        http.post("/v1/forecasts", json=event)
        http.post("/v1/forecasts", json=event | {"score": 0.6})
        http.put("/v1/outcomes", json={"stream": "paris/orly", "id": "a", "outcome": 1})  # through ASGI
        for path in ("/v1/streams/paris%2Forly", "/v1/streams/nobody", "/v1/streams/paris%2Forly/history?limit=1"):
            http.get(path)
        http.get("/no/such/path")
        talk(url, b"\x00 garbage\r\n\r\n")
        found = samples(http.get("/metrics").text)
        again = samples(http.get("/metrics").text)
    counted = {
        tuple(re.findall(r'"(.*?)"', name)): int(value)
        for name, value in found.items()
        if name.startswith("calibeat_http_requests_total{")
    }
    assert counted == {
        ("POST", "/v1/forecasts", "200"): 1,
        ("POST", "/v1/forecasts", "409"): 1,
        ("PUT", "/v1/outcomes", "200"): 1,
        ("GET", "/v1/streams/{stream}", "200"): 1,
        ("GET", "/v1/streams/{stream}", "404"): 1,
        ("GET", "/v1/streams/{stream}/history", "200"): 1,
        ("GET", "other", "404"): 1,
        ("", "other", "400"): 1,
    }
    assert found['calibeat_http_request_seconds_count{route="/v1/forecasts"}'] == 2
    assert 0 < found['calibeat_http_request_seconds_sum{route="/v1/forecasts"}'] < 600
    assert again['calibeat_http_requests_total{method="GET",route="/metrics",status="200"}'] == 1
    (build,) = [name for name in found if name.startswith("calibeat_build_info{")]
    assert f'version="{__version__}"' in build and 'store="sqlite"' in build and 'method="ops"' in build
    assert found["calibeat_store_up"] == 1 and found["process_open_fds"] < found["process_max_fds"]
    assert found["process_resident_memory_bytes"] > 1e6 and found["process_start_time_seconds"] > 1e9


def test_buckets_add_up_and_labels_are_escaped() -> None:
    numbers = EngineCounters(commit_seconds=BucketCounts((0.1, 1.0)))
    for value in (0.05, 0.5, 0.7, 5.0):
        numbers.commit_seconds.add(value)
    text = metrics_text(numbers, Totals(0, 0, 0, 0, 0, 0, 0, None, None, None), {'a"b\\c\n': 1}).decode()
    assert 'calibeat_commit_seconds_bucket{le="0.1"} 1.0\ncalibeat_commit_seconds_bucket{le="1.0"} 3.0\n' in text
    assert 'calibeat_commit_seconds_bucket{le="+Inf"} 4.0\n' in text
    assert 'code="a\\"b\\\\c\\n"' in text
    assert "calibeat_log_loss" not in text and "calibeat_oldest_pending_seconds 0.0\n" in text
    away = metrics_text(numbers, None, {}).decode()
    assert (
        "\ncalibeat_store_up 0.0\n" in away
        and "calibeat_streams" not in away
        and "calibeat_forecasts_total 0.0" in away
    )
