"""What a contributor's machine lacks is skipped with a reason; in continuous integration it fails."""

from __future__ import annotations

import components
import conftest
import pytest
from components import Component, component


@pytest.fixture(autouse=True)
def empty_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)


def test_a_missing_component_skips_with_a_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"needs Chromium and its driver \(make chromium\)"):
        component("chromium")


def test_in_continuous_integration_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"needs Chromium and its driver \(make chromium\)"):
        component("chromium")
    monkeypatch.setenv("CI", "false")
    with pytest.raises(pytest.skip.Exception):
        component("chromium")


def test_present_programs_are_given_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: f"/bin/{program}")
    assert component("chromium") == ["/bin/chromium", "/bin/chromedriver"]


def test_coverage_leaves_out_what_only_a_missing_component_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert components.COMPONENTS["chromium"].files == ()  # nothing in src needs it
    known = {"db": Component("A database", ("db",), "make db", ("src/calibeat/a.py", "src/calibeat/b.py"))}
    monkeypatch.setattr(components, "COMPONENTS", known)
    assert components.omitted() == "--omit=src/calibeat/a.py,src/calibeat/b.py"
    monkeypatch.setenv("CI", "true")
    assert components.omitted() == ""
    monkeypatch.delenv("CI")
    monkeypatch.setattr("shutil.which", lambda program: f"/bin/{program}")
    assert components.omitted() == ""


def test_every_place_that_conftest_names_exists() -> None:
    for place in (*conftest.UNMEASURED, *conftest.SLOW, *conftest.EXHAUSTIVE):
        file, _, name = place.partition("::")
        path = conftest.HERE / file
        assert path.exists(), place
        assert f"def {name}(" in path.read_text() if name else True, place
    assert conftest._among("paper/test_rules.py::test_x", ("paper",))
    assert not conftest._among("paper/test_rules.py::test_x", ("pap", "paper/test_rules.py::test_y"))
