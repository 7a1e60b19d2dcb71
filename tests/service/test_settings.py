"""Settings that change what is learned or watched belong to the store: all who serve it have the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from services import DAY, desk, whole

from calibeat.cli.main import main
from calibeat.errors import InvalidInput, UnknownMethod
from calibeat.service.engine import Engine
from calibeat.service.maintenance import configure, info
from calibeat.service.settings import EngineSettings
from calibeat.service.store import NotLeader

GIVEN: dict[str, Any] = {"monitor": 1000.0, "notice": False, "expire": 30 * DAY, "expire_as": 0, "mature": 7 * DAY}
OTHERS: dict[str, Any] = {"monitor": 2000.0, "notice": True, "expire": 31 * DAY, "mature": 8 * DAY}
TEXTS = {"monitor": ("1000", "2000"), "notice": ("off", "on"), "expire": ("30d", "31d"), "mature": ("7d", "8d")}


def settings_of(url: str) -> dict[str, Any]:
    found = info(url)
    return {name: found[name] for name in GIVEN}


def test_a_new_store_takes_what_is_given_and_the_next_process_takes_it_from_the_store(url: str) -> None:
    with desk(url, **GIVEN):
        pass
    with desk(url, method=None) as service:
        found = service.engine.settings
        assert {name: getattr(found, name) for name in GIVEN} == GIVEN
        assert (found.method, found.seed) == ("tops", 0) and service.engine.model.watched is not None
    assert settings_of(url) == GIVEN


def test_a_new_store_notices_and_does_nothing_else(url: str) -> None:
    with desk(url):
        pass
    assert settings_of(url) == {"monitor": None, "notice": True, "expire": None, "expire_as": None, "mature": None}


@pytest.mark.parametrize("name", OTHERS)
def test_another_value_is_refused_with_the_command_that_changes_it(url: str, name: str) -> None:
    with desk(url, **GIVEN) as service:
        service.play(10)
    old, new = TEXTS[name]
    words = f"--{name} must be that of the store, {old}, got {new} - leave it out, or change it for all who serve the "
    with pytest.raises(InvalidInput, match=words) as caught:
        Engine.open(url, EngineSettings(**{name: OTHERS[name]}))
    assert str(caught.value).endswith(f"`calibeat store configure --{name} {new}`")
    assert settings_of(url) == GIVEN
    configure(url, **{name: OTHERS[name]})
    with desk(url, method=None, **{name: OTHERS[name]}) as service:
        service.play(10, seed=1)
    assert settings_of(url) == GIVEN | {name: OTHERS[name]}
    assert whole(url)


def test_everything_may_be_switched_off(url: str) -> None:
    with desk(url, **GIVEN) as service:
        service.play(10)
    configure(url, monitor=None, expire=None, expire_as=None, mature=None)
    with desk(url) as service:
        assert service.engine.model.watched is None
        service.play(10, seed=1)
    assert settings_of(url) == dict.fromkeys(GIVEN) | {"notice": False}
    assert whole(url)


def test_a_store_takes_no_settings_that_contradict_one_another(url: str) -> None:
    with desk(url, **GIVEN):
        pass
    for wrong, words in (
        ({"mature": 40 * DAY}, "expire must be longer than mature"),
        ({"expire": None}, "expire_as must come with expire"),
        ({"monitor": -1.0}, "arl must be"),
    ):
        with pytest.raises(InvalidInput, match=words):
            configure(url, **wrong)
    with pytest.raises(UnknownMethod):
        configure(url, method="nothing")
    assert settings_of(url) == GIVEN


def test_a_store_that_is_served_keeps_its_settings(url: str) -> None:
    engine = Engine.open(url, EngineSettings())
    engine.start(lambda _: None)
    try:
        with pytest.raises(InvalidInput, match="store must"):
            configure(url, monitor=1000.0)
    finally:
        engine.stop()
    assert settings_of(url)["monitor"] is None


def test_a_service_that_slept_while_its_store_got_other_settings_writes_nothing(server: Any) -> None:
    """Its lease has ended, and with it all that it may do; the next one has the new settings."""
    url = server.database()
    with desk(url) as service:
        service.ask(("paris", "e1", 0.5))
        configure(url, monitor=1000.0, method="ops")
        with pytest.raises(NotLeader, match="store must be written by the service that leads"):
            service.ask(("paris", "e2", 0.5))
    assert info(url)["forecasts"] == 1
    with pytest.raises(InvalidInput, match="method must be that of the store, 'ops', got 'tops'"):
        Engine.open(url, EngineSettings(method="tops"))
    with desk(url, method=None) as service:
        assert service.engine.settings.monitor == 1000.0


# ---- as it is typed --------------------------------------------------------------------------------------------------


LATER_OFF = "expire as off mature off band off"


def words(*parts: str) -> list[str]:
    return " ".join(parts).split()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = str(tmp_path / "a.db")

    def typed(*words: str) -> tuple[int, str, str]:
        status = main(["store", *words, "--store", url])
        output = capsys.readouterr()
        return status, output.out, output.err

    assert typed("configure")[0] == 2
    with desk(url) as service:
        service.play(10)
    assert typed("configure")[1].split() == words("method tops seed 0 monitor off notice on expire off", LATER_OFF)
    status, shown, _ = typed(
        "configure", *words("--monitor 900000 --expire 30d --expire-as 1 --mature 12h --notice off")
    )
    assert status == 0
    assert shown.split()[4:] == words("monitor 900000 notice off expire 30d expire as 1 mature 12h band off")
    assert "monitor               900000\nnotice                off\nexpire                30d\n" in typed("info")[1]
    off = "--monitor off --expire off --expire-as off --mature off --notice on --method ops --json"
    status, shown, _ = typed("configure", *words(off))
    wanted = dict.fromkeys(GIVEN) | {"method": "ops", "seed": 0, "notice": True, "band": False}
    assert status == 0 and json.loads(shown) == wanted
    assert whole(url)
    for wrong, sentence in (
        ("--expire 30", "expire must be a time such as 12h or 30d, got '30'"),
        ("--notice yes", "--notice must be on or off, got 'yes'"),
        ("--band yes", "--band must be on or off, got 'yes'"),
        ("--band on", "the interval requires AUTO: Calibrator('auto', band=True), got ops"),
        ("--monitor often", "--monitor must be a number of outcomes, or off, got 'often'"),
        ("--expire-as one", "--expire-as must be 0, 1 or off, got 'one'"),
    ):
        status, _, errors = typed("configure", *words(wrong))
        assert status == 2 and sentence in errors
    status = main(["serve", "--store", url, "--port", "0", "--monitor", "1000"])
    assert status == 2 and "--monitor must be that of the store, off, got 1000" in capsys.readouterr().err


def test_a_store_that_a_token_has_made_has_the_settings_of_a_new_one(tmp_path: Path) -> None:
    store = str(tmp_path / "new.db")
    assert main(["token", "create", "--scope", "read", "--name", "page", "--store", store]) == 0
    assert (info(store)["method"], info(store)["notice"], info(store)["expire"]) == ("auto", True, None)
    configured = configure(store, method="tops", expire=30 * DAY)
    assert (configured.method, configured.expire, configured.notice) == ("tops", 30 * DAY, True)
    with desk(store, method=None) as service:
        assert service.engine.settings.expire == 30 * DAY
    assert info(store)["method"] == "tops"
