"""What the tests share: settings of hypothesis, the repository's data, and what must hold after the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

DATA = Path(__file__).parents[1] / "data"

JIT_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")

# No deadline: machines are noisy, and the first call of a kernel may compile it.
settings.register_profile(
    "calibeat", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("calibeat")


@pytest.fixture(scope="session", autouse=True)
def one_signature_per_kernel() -> Iterator[None]:
    """After all tests of this process, whatever they did: a kernel that was compiled was compiled once.

    A second signature would mean that some input reaches the kernels in another form, and that its users wait for
    another compilation.
    """
    yield
    from calibeat.core.jit import dispatchers

    found = {name: dispatcher.signatures for name, dispatcher in dispatchers().items()}
    assert {name: signatures for name, signatures in found.items() if len(signatures) != 1} == {}
