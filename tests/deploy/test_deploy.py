"""`deploy/`: each file by the program that reads it, as far as Debian has one; the rest by what it names.

Not tested: that the image builds, that the compose file comes up and that Grafana draws the dashboard. They need Docker
and images of others.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import postgres
import pytest
import yaml
from components import component
from served import service_apart, service_here, wait_until

from calibeat.cli.main import main, parser
from calibeat.service.counters import EngineCounters, Traffic, metrics_text
from calibeat.service.store.queries import Totals

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboards" / "calibeat.json").read_text())


def run(*command: object, **more: Any) -> str:
    """What a program says; it must be content."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def parsed(words: list[str]) -> Any:
    """A command line of calibeat, as `calibeat` reads it."""
    return parser(words[0]).parse_args(words)


# ---- nginx ----------------------------------------------------------------------------------------------------------


@contextmanager
def nginx(folder: Path, services: list[str], more: str = "") -> Iterator[str]:
    """nginx with our configuration in front of some services -> its address; `more` is added to the server."""
    text = (DEPLOY / "nginx.conf").read_text()
    for name, url in zip(("calibeat-1", "calibeat-2"), services, strict=True):
        assert text.count(f"server {name}:8377 ") == 1
        text = text.replace(f"server {name}:8377 ", f"server {url.removeprefix('http://')} ")
    with nginx_with(folder, text, "listen 8377;", more) as socket:
        yield socket


@contextmanager
def nginx_with(folder: Path, text: str, port: str, more: str = "") -> Iterator[str]:
    """nginx with a configuration, which listens on a socket in place of a port -> its address."""
    (program,) = component("nginx")
    socket = folder / "nginx.sock"
    assert text.count(port) == 1
    text = text.replace(port, f"listen unix:{socket};\n{more}")
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = text.replace("http {", f"http {{\n{temporary}")
    if os.getuid() == 0:
        text = "user root;\n" + text  # the folder of a test is its owner's alone
    (folder / "nginx.conf").write_text(f"pid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n{text}")
    command = [program, "-c", folder / "nginx.conf", "-p", folder, "-e", folder / "error.log"]
    run(*command, "-t")
    process = subprocess.Popen([str(word) for word in [*command, "-g", "daemon off;"]])
    try:
        wait_until(socket.exists)
        yield str(socket)
    finally:
        process.terminate()
        process.wait(30)


def test_nginx_sends_requests_to_the_service_that_leads(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = postgres.start()
        stack.callback(server.close)
        url = server.database()
        found = [stack.enter_context(service_apart(url, "--method", "ops")) for _ in range(2)]
        below = "location /sub/ { proxy_pass http://calibeat/; proxy_set_header Host $host; }"
        socket = stack.enter_context(nginx(tmp_path, [each.url for each in found], below))
        transport = httpx.HTTPTransport(uds=socket)
        http = stack.enter_context(httpx.Client(base_url="http://localhost", transport=transport, timeout=30))
        events = [{"stream": "rome", "id": f"r{at}", "score": 0.5} for at in range(20)]
        told = [http.post("/v1/forecasts", json=event) for event in events]
        assert {answer.status_code for answer in told} == {200}
        assert found[0].end()[0] == 0  # the leader
        wait_until(lambda: http.get("/readyz").status_code == 200)
        assert [http.post("/v1/forecasts", json=e).json() for e in events] == [answer.json() for answer in told]
        assert http.get("/metrics").status_code == 404
        # Everything that the dashboard asks for is relative, so it works below another path.
        page = http.get("/sub/").text
        for link in re.findall(r'(?:href|src|action)="([^"#]+)"', page):
            assert not link.startswith("/"), link
        assert http.get("/sub/static/dashboard.js").status_code == 200
        assert http.get("/sub/v1/overview").status_code == 200
        assert 'href="openapi.json"' in http.get("/sub/docs").text
        script = http.get("/sub/static/dashboard.js").text
        assert not re.search(r"""["'`]/(v1|static|login|logout|metrics)""", script)


def test_nginx_divides_streams_among_shards(tmp_path: Path) -> None:
    """The rule of docs/service-store.md."""
    page = (ROOT / "docs" / "service-store.md").read_text()
    (rule,) = re.findall(r"```nginx\n(map \$request_uri .*?)```", page, re.DOTALL)
    with ExitStack() as stack:
        urls = [stack.enter_context(service_here(tmp_path / f"{at}.db")) for at in range(2)]
        for port, url in zip(("8377", "8378"), urls, strict=True):
            assert rule.count(f"server 127.0.0.1:{port};") == 1
            rule = rule.replace(f"server 127.0.0.1:{port};", f"server {url.removeprefix('http://')};")
        socket = stack.enter_context(
            nginx_with(tmp_path, f"events {{}}\nhttp {{\naccess_log off;\n{rule}\n}}", "listen 8380;")
        )
        transport = httpx.HTTPTransport(uds=socket)
        http = stack.enter_context(httpx.Client(base_url="http://localhost", transport=transport, timeout=30))
        names = [f"s{at}" for at in range(12)]
        for turn in range(3):
            for name in names:
                event = {"stream": name, "id": f"{name}-{turn}", "score": 0.5}
                assert http.post("/v1/forecasts", json=event, headers={"x-stream": name}).status_code == 200
        held = [{s["name"]: s["events"] for s in httpx.get(f"{url}/v1/streams").json()["streams"]} for url in urls]
        assert set(held[0]) | set(held[1]) == set(names) and all(held)  # both have some, and
        assert not set(held[0]) & set(held[1])  # none is in two
        assert {n for each in held for n in each.values()} == {3}
        for name in names:  # what names the stream in its path goes there, too
            assert http.post(f"/v1/streams/{name}/freeze").json()["state"] == "frozen"
        event = {"stream": "rome", "id": "r1", "score": 0.5}
        assert http.post("/v1/forecasts", json=event).status_code == 421  # nginx cannot see whose this is
        assert http.get("/v1/streams").status_code == 421


# ---- Kubernetes -----------------------------------------------------------------------------------------------------


def test_kubernetes_starts_a_leader_and_a_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert deployment["spec"]["replicas"] == 2
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    for each in container["env"]:
        monkeypatch.setenv(each["name"], "postgresql://db/calibeat")
    options = parsed(container["args"])
    assert options.store == "postgresql://db/calibeat"
    (port,) = container["ports"]
    assert {options.port} == {port["containerPort"], *(each["port"] for each in service["spec"]["ports"])}
    probes = [container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    assert [(probe["path"], probe["port"]) for probe in probes] == [("/healthz", 8377), ("/readyz", 8377)]


# ---- Prometheus and Grafana -----------------------------------------------------------------------------------------


def served_metrics() -> set[str]:
    """The names of all samples that a service has."""
    traffic = Traffic()
    traffic.add("/v1/forecasts", "POST", 200, 0.1)
    text = metrics_text(EngineCounters(), Totals(1, 1, 1, 1, 0, 0, 0, 1.0, 0.5, 0.5), {}, traffic).decode()
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")} | {"up"}


def named_metrics(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:calibeat|process)_\w+|\bup\b", re.sub(r'"[^"]*"', "", expression)))


def test_promtool_takes_the_rules_and_the_configuration() -> None:
    (promtool,) = component("promtool")
    assert "9 rules found" in run(promtool, "check", "rules", "alerts.yml", cwd=DEPLOY)
    run(promtool, "test", "rules", "alerts-test.yml", cwd=DEPLOY)
    run(promtool, "check", "config", "--syntax-only", "prometheus.yml", cwd=DEPLOY)
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    assert set().union(*(named_metrics(rule["expr"]) for rule in rules)) <= served_metrics()


def expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_the_dashboard_asks_for_what_there_is(tmp_path: Path) -> None:
    """Its questions are PromQL, of metrics that a service has, and its panels lie side by side."""
    assert set().union(*map(named_metrics, expressions())) <= served_metrics()
    (promtool,) = component("promtool")
    plain = [e.replace("$__rate_interval", "5m").replace("$instance", ".*") for e in expressions()]
    rules = [{"record": f"panel:{at}", "expr": expression} for at, expression in enumerate(plain)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    run(promtool, "check", "rules", tmp_path / "rules.yml")


def test_the_dashboard_has_the_shape_that_grafana_reads() -> None:
    assert DASHBOARD["uid"] and DASHBOARD["title"] and isinstance(DASHBOARD["schemaVersion"], int)
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["type"] in {"timeseries", "stat"} and panel["title"] and panel["targets"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24
        taken |= cells
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    known = {"${" + each["name"] + "}" for each in DASHBOARD["templating"]["list"]}
    assert {panel["datasource"]["uid"] for panel in panels} <= known


# ---- systemd --------------------------------------------------------------------------------------------------------


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    (analyze,) = component("systemd")
    text = (DEPLOY / "calibeat.service").read_text()
    (started,) = re.findall(r"^ExecStart=/opt/calibeat/bin/calibeat (.*)$", text, re.MULTILINE)
    assert parsed(started.split()).store == "${STATE_DIRECTORY}/calibeat.db"
    unit = tmp_path / "calibeat.service"  # the program and the user of this machine
    unit.write_text(text.replace("/opt/calibeat/bin/calibeat", "/bin/true").replace("User=calibeat", "User=root"))
    said = run(analyze, "verify", unit)
    assert "calibeat.service" not in said, said


# ---- Docker ---------------------------------------------------------------------------------------------------------


def test_the_compose_file_names_what_there_is() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"postgres", "tokens", "calibeat-1", "calibeat-2", "nginx", "prometheus", "grafana"}
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).exists(), source
        depends = service.get("depends_on", ())
        assert set(depends) <= set(services)
    for name in ("calibeat-1", "calibeat-2"):
        args = parsed(services[name]["command"])
        assert args.store == "postgresql://calibeat@postgres/calibeat" and args.host == "0.0.0.0"  # noqa: S104
        assert f"server {name}:8377 " in (DEPLOY / "nginx.conf").read_text()
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == ["calibeat-1:8377", "calibeat-2:8377"]
    assert scraped["authorization"]["credentials_file"] == "/tokens/read"
    assert services["nginx"]["ports"] == ["8377:8377"]


def test_the_image_starts_what_there_is() -> None:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL"}
    assert {line.split()[0] for line in lines} == known | {"ENTRYPOINT", "CMD"}
    command = next(json.loads(line[4:]) for line in lines if line.startswith("CMD "))
    assert parsed(command).log_format == "json"
    extras = re.search(r"'\.\[(.*?)\]'", text)
    assert extras and set(extras[1].split(",")) == {"service", "postgres"}
    assert "FROM python:3.12-slim" in lines and "USER calibeat" in lines


def test_tokens_are_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calibeat = tmp_path / "calibeat"
    calibeat.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m calibeat "$@"\n')
    calibeat.chmod(0o755)
    store, path = tmp_path / "calibeat.db", f"{tmp_path}:{os.environ['PATH']}"
    for _ in range(2):
        run("/bin/sh", DEPLOY / "make-tokens.sh", store, tmp_path, env={**os.environ, "PATH": path})
    assert main(["token", "list", "--store", str(store), "--json"]) == 0
    assert sorted(token["scope"] for token in json.loads(capsys.readouterr().out)) == ["read", "write"]
    written = (tmp_path / "write").read_text().strip()
    with service_here(store) as url:
        event, held = {"stream": "s", "id": "i", "score": 0.5}, {"authorization": f"Bearer {written}"}
        assert httpx.post(f"{url}/v1/forecasts", json=event, headers=held).status_code == 200
