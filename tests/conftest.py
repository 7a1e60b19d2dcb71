"""What the tests share: the folder beside the project that holds the golden vectors, where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from calibeat.core import jit

SHARED = Path(__file__).parents[2] / "shared"

JIT_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")

jit._PATIENCE = 0.0  # no batch is too small to be compiled: the suite is about the compiled kernels too

# No deadline: machines are noisy, and the first call of a kernel may compile it.
settings.register_profile(
    "calibeat", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("calibeat")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared folder; a test that needs it skips where it is absent."""
    if not SHARED.exists():
        pytest.skip("needs the shared folder beside the project (golden vectors, datasets)")
    return SHARED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What must hold after the whole suite is looked at after the whole suite."""
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)
