"""A checkout whose kernels were edited after the core was compiled is not imported; an installed package always is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import calibeat
from calibeat import _compiled as core
from calibeat.core.fresh import check_fresh, digest

PACKAGE = Path(calibeat.__file__).parent

FILE = '''"""A file."""

from calibeat.core.subset import kernel

WIDTH = 3
SCALES = (
    1.0,
    2.0,
)


class Pair(NamedTuple):
    a: float


class Host:
    """What no kernel knows."""


@kernel
def half(x: float) -> float:
    return 0.5 * x
'''


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the package as it lies in a checkout."""
    (tmp_path / "compiling").mkdir()
    package = tmp_path / "src" / "calibeat"
    for name in core.SOURCES:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / name, package / name)
    return package


def test_the_core_is_that_of_the_files_that_are_here(checkout: Path) -> None:
    check_fresh(PACKAGE, core.SOURCES)
    check_fresh(checkout, core.SOURCES)
    assert {"core/kernel.py", "hosts/keys.py", "monitor/bets.py", "service/rollups.py"} <= set(core.SOURCES)
    # These have no kernel, but structs and constants that kernels use.
    assert {"core/layout.py", "core/receipt.py", "_util/types.py"} <= set(core.SOURCES)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("core/learners.py", "t0 - gain * s0", "t0 + gain * s0"),
        ("core/algebra.py", "ROUNDING = 2.0**-52", "ROUNDING = 2.0**-51"),
        ("core/vector.py", "    0.5000000000000001,\n", "    0.5000000000000002,\n"),
        ("core/layout.py", "    window: int = 0\n", ""),
        ("core/layout.py", "MEAN_LAG = THETA + 49", "MEAN_LAG = THETA + 48"),
        ("core/receipt.py", "HORIZON_LANE = 11", "HORIZON_LANE = 12"),
        ("core/loops.py", "@kernel\ndef fetch_row", "@large_kernel\ndef fetch_row"),
    ],
)
def test_a_kernel_a_struct_or_a_constant_was_edited(checkout: Path, name: str, before: str, after: str) -> None:
    text = (checkout / name).read_text()
    assert before in text
    (checkout / name).write_text(text.replace(before, after))
    with pytest.raises(ImportError) as error:
        check_fresh(checkout, core.SOURCES)
    assert str(error.value) == f"{name} has changed since calibeat's core was compiled: run `make build`"


def test_a_file_is_missing(checkout: Path) -> None:
    (checkout / "core" / "guard.py").unlink()
    with pytest.raises(ImportError, match=r"core/guard\.py has changed since .* run `make build`"):
        check_fresh(checkout, core.SOURCES)


def test_what_no_kernel_sees_may_change(checkout: Path) -> None:
    path = checkout / "hosts" / "rows.py"
    path.write_text(path.read_text().replace("class FoldColumns:\n", "class FoldColumns:\n    # another line\n"))
    check_fresh(checkout, core.SOURCES)


def test_an_installed_package_is_taken_as_it_is(checkout: Path) -> None:
    (checkout / "core" / "kernel.py").unlink()
    (checkout.parents[1] / "compiling").rmdir()
    check_fresh(checkout, core.SOURCES)


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        ("0.5 * x", "0.25 * x", True),
        ("WIDTH = 3", "WIDTH = 4", True),
        ("    2.0,\n", "    3.0,\n", True),
        ("    a: float", "    a: int", True),
        ("@kernel", "@entry", True),
        ("What no kernel knows", "Whatever", False),
        ('"""A file."""', '"""The file."""', False),
    ],
)
def test_what_the_digest_sees(before: str, after: str, seen: bool) -> None:
    assert before in FILE
    assert (digest(FILE.replace(before, after)) != digest(FILE)) == seen
