"""What the tests share: settings of hypothesis, and which tests are slow or unmeasured."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
DATA = HERE.parent / "data"

# No deadline: machines are noisy.
settings.register_profile(
    "calibeat", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("calibeat")

# ---- which tests run where (files, or tests of a file) --------------------------------------------------------------

# Measuring lines makes Python two to three times slower. These tests run without it; others reach the same lines.
UNMEASURED = (
    "core/test_against_oracle.py",
    "core/test_golden.py",
    "core/test_oracle.py",
    "core/test_theorems.py",
    "monitor/test_bets.py::test_false_alarms_stay_below_the_promise",
    "monitor/test_monitors.py::test_false_pages_of_a_whole_bank_stay_below_the_promise",
    "core/test_vector.py::test_it_is_the_oracle",
    "core/test_vector.py::test_late_labels_are_those_of_the_oracle",
    # Its signals may come inside of `coverage`, which then waits for a lock of its own for ever.
    "hosts/test_interrupts.py::test_ctrl_c_in_one_compiled_step_is_heard_when_all_is_done",
    "report/test_browser.py",
    "report/test_screens.py",
    "test_all_hosts_agree.py",
    "test_conformance.py",
    "test_gallery.py",
    "test_hosts.py",
    "test_river.py::test_the_checks_of_river",
    "test_river_multi.py::test_the_checks_of_river",
)
# Only `make test-all` runs these. `make test` has samples of the same cases, or they are about the paper's experiments.
EXHAUSTIVE = (
    "core/test_against_oracle.py::test_equal_to_the_oracle_on_all_other_streams",
    "core/test_compiled.py::test_every_method_on_longer_and_on_other_streams",
    "core/test_several.py::test_nothing_breaks_it_in_the_long_run",
    "reproduction",
    "sklearn/test_classifier.py::test_the_checks_of_scikit_learn_on_data_that_are_no_scores",
    "test_all_hosts_agree.py::test_many_more_random_sequences",
    "test_bounds.py::test_several_models_keep_the_bound_in_the_long_run",
)
# `make test-quick` leaves these out: they take long, and what they test seldom breaks alone.
SLOW = (
    "backtest/judge/test_intervals_bootstrap.py",
    "backtest/judge/test_verdict.py::test_some_method_crosses_the_threshold_in_few_calibrated_logs",
    "backtest/judge/test_verdict.py::test_verdict_interval_and_legend_say_the_same",
    "hosts/test_bankfile.py::test_processes_share_a_file",
    "core/test_against_oracle.py",
    "core/test_oracle.py",
    "core/test_vector.py::test_it_is_the_oracle",
    "core/test_vector.py::test_late_labels_are_those_of_the_oracle",
    "report/test_browser.py",
    "report/test_classes.py",
    "report/test_screens.py",
    "service/test_dashboard.py",
    "sklearn/test_classifier.py::test_the_checks_of_scikit_learn",
    "test_gallery.py",
    "test_river.py::test_the_checks_of_river",
    "test_river_multi.py::test_the_checks_of_river",
    "test_hosts.py",
)
# Tests that use one of these fixtures, which take seconds to make, run in one process.
SHARED_FIXTURES = ("chrome", "short_run")


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = f"{item.path.relative_to(HERE).as_posix()}::{getattr(item, 'originalname', item.name)}"
        if _among(name, UNMEASURED):
            item.add_marker(pytest.mark.no_cover)
        if _among(name, EXHAUSTIVE):
            item.add_marker(pytest.mark.exhaustive)
        if _among(name, SLOW) or "chrome" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
        for fixture in set(SHARED_FIXTURES) & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(f"{item.path.stem} {fixture}"))


def _among(name: str, places: tuple[str, ...]) -> bool:
    """Whether a test is one of these, in one of these files, or in a file of one of these folders."""
    return any(name == place or name.startswith((f"{place}::", f"{place}/")) for place in places)


# ---- around everything --------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The test files leave a million objects, which stay. Python need not look for garbage among them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Where Ctrl-C is ignored (`make test &`, `nohup make test`), what the tests start would ignore it too."""
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
