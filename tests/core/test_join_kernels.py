"""The translation of kernels: what they may do means in C what it means in Python, and all else is refused by line."""

from __future__ import annotations

import math
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from twice import called_twice

import calibeat
from calibeat.core.subset import bits_of, float_of, scratch, unrolled

PACKAGE = Path(calibeat.__file__).parent
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parents[2] / "compiling"))

from join_kernels import Joiner, NotAllowedError, Unit, units  # noqa: E402 - found on the path of the line above

IMPORTS = """from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from calibeat._util.types import Bytes, Ints, Slots, Table, Vector
from calibeat.core.subset import bits_of, entry, float_of, kernel, large_kernel, loop, prefetch, scratch
from calibeat.core.subset import unrolled
"""
TOYS = '''
WIDTH, GAIN = 3, 2.0**-3
LARGE = 0xFFFFFFFF + WIDTH
KNOTS = tuple(k / 4.0 for k in range(5))
NAME = "toy"


class Pair(NamedTuple):
    """A struct."""

    share: float
    count: int
    values: Vector
    sure: bool


def ordinary(x: float) -> float:
    return x


@kernel
def half(x: float) -> float:
    return 0.5 * x


@kernel
def first(v: Vector) -> float:
    return v[0]


'''


def every(_module: str) -> bool:
    return True


def none(_module: str) -> bool:
    return False


def joined(folder: Path, kernels: str, constants: dict[str, tuple[str, str]] | None = None) -> str:
    """The text that is made of a package with these kernels."""
    package = folder / "src" / "calibeat"
    (package / "_util").mkdir(parents=True, exist_ok=True)
    shutil.copy(PACKAGE / "_util" / "types.py", package / "_util" / "types.py")
    (package / "toys.py").write_text(IMPORTS + TOYS + kernels)
    return Joiner(folder / "src", constants or {}).text(every)


# ---- what is refused -------------------------------------------------------------------------------------------------

REFUSED = {
    # the body of a kernel -> what is said of it
    "y = [0.0, 1.0]": "there is an expression that kernels cannot have: [0.0, 1.0]",
    "y = ordinary(x)": "ordinary is called, which is no kernel: ordinary(x)",
    "y = math.exp(x)": "there is math.exp, which kernels do not have yet: math.exp(x)",
    "y = x**2.0": "there is an operator that kernels cannot have: x ** 2.0",
    "y = nothing": "there is what kernels cannot have (name 'nothing' is not defined): y = nothing",
    "y = NAME": "there is what kernels cannot have ('toy' is no number): y = NAME",
    "y = first(w)": "there is what kernels cannot have (F64 and I64 have no type in common): y = first(w)",
    "i = 2.5": "i must stay Index, got double",
    "y = half(x=x)": "half wants double, got : half(x=x)",
    "p = Pair(x, i, v, True)\n    p.share = 1.0": "nothing can be put there: p.share",
    "p = Pair(x, i, v, True)\n    q = p._replace(n=1)": "there is what kernels cannot have (Pair has no {'n'})",
    "y = v[::2]": "there is a slice with a step, or from the end: v[::2]",
    "raise ValueError": "there is a statement that kernels cannot have: raise ValueError",
    "for k in range(3):\n        x = 1.0\n    else:\n        x = 2.0": "there is a statement that kernels cannot have",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_refused(body: str, tmp_path: Path) -> None:
    head = "@entry\ndef toy(x: float, i: int, v: Vector, w: Ints) -> float:\n"
    with pytest.raises(NotAllowedError) as error:
        joined(tmp_path, f"{head}    {body}\n    return x\n")
    path, line, sentence = re.fullmatch(r"(.*toys\.py):(\d+): in toy, (.*)", str(error.value), re.DOTALL).groups()
    assert Path(path) == tmp_path / "src" / "calibeat" / "toys.py"
    assert sentence.startswith(REFUSED[body])
    begin = (IMPORTS + TOYS + head).count("\n")
    assert begin <= int(line) <= begin + body.count("\n") + 1


@pytest.mark.parametrize(("signature", "got"), [("x", "no annotation"), ("x: list[float]", "list[float]")])
def test_what_no_argument_may_be(signature: str, got: str, tmp_path: Path) -> None:
    with pytest.raises(NotAllowedError, match=re.escape(f"toys.py: {got} has no C type")):
        joined(tmp_path, f"@entry\ndef toy({signature}) -> float:\n    return 1.0\n")


def test_two_structs_have_two_names(tmp_path: Path) -> None:
    joined(tmp_path, "@entry\ndef toy(p: Pair) -> float:\n    return p.share\n")
    other = "\n\nclass Pair(NamedTuple):\n    a: int\n\n\n@entry\ndef other(p: Pair) -> int:\n    return p.a\n"
    (tmp_path / "src" / "calibeat" / "others.py").write_text(IMPORTS + other)
    with pytest.raises(NotAllowedError, match=r"toys\.py: Pair is already the name of a struct in calibeat\.others"):
        Joiner(tmp_path / "src", {}).text(every)


# ---- what the text says ----------------------------------------------------------------------------------------------


def test_only_entries_and_what_they_call_are_there(tmp_path: Path) -> None:
    marks = ("kernel", "large_kernel", "entry", "loop")
    toys = [f"@{mark}\ndef a_{mark}(x: float) -> float:\n    return x\n" for mark in marks]
    toys += ["@kernel\ndef idle(x: float) -> float:\n    return x\n"]
    toys += ["@entry\ndef all_of_them(x: float) -> float:\n    return a_kernel(x) + a_large_kernel(x)\n"]
    text = joined(tmp_path, "\n\n".join(toys))
    assert re.findall(r"^def (\w+)\(", text, re.MULTILINE) == ["toys_a_entry", "toys_a_loop", "toys_all_of_them"]
    assert "a_large_kernel" in text and "idle" not in text


def test_constants_with_a_name_in_c(tmp_path: Path) -> None:
    toy = "@entry\ndef toy(x: float) -> float:\n    return x\n"
    text = joined(tmp_path, toy, {"TOY_WIDTH": ("toys", "WIDTH")})
    assert "cdef enum:\n    TOY_WIDTH = 3\n" in text
    for own in ("GAIN", "NAME", "half"):
        with pytest.raises(NotAllowedError, match=rf"toys\.py: {own} must be a whole number to be C_NAME in C, got "):
            joined(tmp_path, toy, {"C_NAME": ("toys", own)})


# ---- whether it is the core that runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", units(PACKAGE.parent), ids=lambda unit: unit.name)
def test_the_core_was_compiled_from_the_files_that_are_here(unit: Unit) -> None:
    made_from = made_from_of(unit.text())
    compiled = import_module(f"calibeat.{unit.name}")
    assert made_from == compiled.MADE_FROM, "a kernel has changed since the core was compiled: run `make build`"


def test_make_compiles_when_one_of_these_files_has_changed() -> None:
    read = set()
    for unit in units(PACKAGE.parent):
        unit.text()
        read |= {*unit.joiner.files(), *unit.written}
    command = ["make", "--silent", "--eval", "files: ; @echo $(CORE)", "files"]
    watched = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {str(file.relative_to(ROOT)) for file in read} <= set(watched)
    assert {"setup.py", "compiling/join_kernels.py", "src/calibeat/core/units.py"} <= set(watched)


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        ("0.5 * x", "0.25 * x", True),
        ("@kernel\ndef half", "@large_kernel\ndef half", True),
        ('"""A struct."""', '"""Two lines\n\n    of it."""', False),
        ("def ordinary(x: float) -> float:\n", "def ordinary(x: float) -> float:\n    # What no kernel knows\n", False),
    ],
)
def test_what_the_hash_sees(before: str, after: str, seen: bool, tmp_path: Path) -> None:
    toy = "@entry\ndef toy(p: Pair) -> float:\n    return half(p.share) * WIDTH\n"
    first = made_from_of(joined(tmp_path, toy))
    file = tmp_path / "src" / "calibeat" / "toys.py"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    assert (made_from_of(Joiner(tmp_path / "src", {}).text(every)) != first) == seen


def test_the_files_written_by_hand(tmp_path: Path) -> None:
    """They are in the hash, and the kernels that they call are there, whoever has them."""
    by_hand = tmp_path / "_stream.pxi"
    by_hand.write_text("cdef double twice(double x):\n    return 4.0 * k_toys_half(x)\n")
    joined(tmp_path, "@entry\ndef toy(x: float) -> float:\n    return x\n")
    with_it, without = (Joiner(tmp_path / "src", {}).text(none, written) for written in ([by_hand], []))
    assert "k_toys_half(double x)" in with_it and "k_toys" not in without and "\ndef " not in with_it
    by_hand.write_text(by_hand.read_text() + "# more\n")
    again = Joiner(tmp_path / "src", {}).text(none, [by_hand])
    assert len({made_from_of(text) for text in (with_it, without, again)}) == 3
    assert again.splitlines()[1:] == with_it.splitlines()[1:]


def made_from_of(text: str) -> str:
    return re.fullmatch(r"MADE_FROM = '(\w{64})'", text.splitlines()[0]).group(1)


# ---- what it means ---------------------------------------------------------------------------------------------------

MEANT = """
@entry
def swap(v: Vector, i: int, j: int) -> None:
    v[i], v[j] = v[j], v[i]


@entry
def index_that_moves(v: Vector, w: Ints) -> int:
    i = 0
    i, v[i] = 1, 5.0
    w[0], w[w[0]] = 2, 7
    return i


@entry
def same_memory(v: Vector) -> float:
    part = v[1:]
    v[1], x = 7.0, part[0]
    v[2], part[2] = part[2], v[2]
    return x


@entry
def from_the_end(v: Vector, w: Ints) -> float:
    v[-1] += 0.5
    return v[-1] + 10.0 * v[-WIDTH] + 100.0 * w[-1]


@entry
def parts(v: Vector, i: int, j: int) -> float:
    part = v[i:j]
    part[0] = 4.0
    first_half, rest = v[: len(v) // 2], v[len(v) // 2 :]
    return len(part) + 10.0 * len(first_half) + 100.0 * len(rest) + first(rest)


@kernel
def doubled(p: Pair) -> Pair:
    return p._replace(share=2.0 * p.share, sure=not p.sure)


@entry
def structs(p: Pair) -> tuple[float, int, bool]:
    q = doubled(p)
    q.values[0] = q.share
    r = Pair(q.share + p.share, q.count + 1, q.values[1:], p.sure)
    return r.share + r.values[0], r.count, q.sure and not r.sure


@kernel
def ends(v: Vector) -> tuple[float, float]:
    return (v[0], v[-1]) if v[0] <= v[-1] else (v[-1], v[0])


@entry
def tuples(v: Vector) -> float:
    low, high = ends(v)
    _, again = ends(v[1:])
    a, b = (low, high) if again > 1.0 else (high, low)
    return low + 10.0 * high + 100.0 * again + 1000.0 * ends(v)[1] + 1e4 * (a - b)


@entry
def numbers(x: float, y: float, i: int) -> tuple[float, float, float, int, int, bool]:
    smallest, largest = min(x, y, 0.25), max(i, 2, 3)
    mixed = 1.0 * (max(x, i) if x < y else i)
    whole = int(x * 100.0) + int(y) + int(-2.75)
    sure = 0.0 <= x < y <= 2.0 and not (i == 3 or math.isnan(y))
    return smallest, mixed, math.sqrt(abs(x)) + abs(x - y), largest, whole, sure


@entry
def whole_numbers(i: int, j: int) -> tuple[int, int, int, float]:
    k = (i // j) * 1000 + i % j
    bits = ((i << 40) ^ (j << 3) | 5) & 0xFFFFFFFFFFFF
    k += bits >> 20
    k *= 3
    k //= 2
    return k, bits, -i, i / j


@entry
def constants(i: int) -> tuple[float, int, float]:
    return WIDTH * GAIN + KNOTS[i] * math.e, LARGE * WIDTH, KNOTS[-1 + WIDTH]


@entry
def least_and_most(x: float, y: float) -> tuple[float, float, float]:
    return min(x, y), max(x, y), max(min(x, 1.0), -1.0)


@entry
def loops(n: int, v: Vector) -> float:
    total, i = 0.0, 0
    while True:
        i += 1
        if i > n:
            break
        elif i % 3 == 0:
            continue
        for k in range(n, 0, -2):
            for m in range(k):
                if m == 3:
                    break
                total += v[m] * i
    total -= 1
    return total


@entry
def written_out(v: Vector) -> float:
    total = 0.0
    for i in unrolled(WIDTH):
        for j in unrolled(i, WIDTH):
            total += v[i] * (j if i < j else 10)
    return total


@entry
def bits(x: float) -> tuple[int, float]:
    found = bits_of(x)
    return found >> 52, float_of((found & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000)


@kernel
def room(x: float) -> float:
    space = scratch(WIDTH)
    space[1] += x
    return space[0] + space[1] + first(space[1:])


@entry
def scratches(x: float) -> float:
    return room(x) + room(x)


@entry
def tables(t: Table, u: Table, n: Ints) -> float:
    rows, columns = t.shape
    for i in range(rows):
        for j in range(t.shape[1]):
            t[i, j] += 10.0 * i + j
            u[i, j, 1, 0] = t[i, j] + u[0, 0, 0, 0]
    n[0], n[1] = rows, columns
    return u[rows - 1, columns - 1, 1, 0]


@entry
def kinds(a: Vector, b: Ints, c: Slots, d: Bytes, i: int) -> int:
    prefetch(a, i)
    b[i] = c[i] + d[i] * 256
    c[i] = d[i] - 300
    d[i] = 255
    a[i] = x = b[i]
    return b[i] + c[i] + int(x)
"""

BUILD = """
import sys
from Cython.Build import cythonize
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext
extension = Extension("toys", ["toys.pyx"], extra_compile_args=["-O1", "-ffp-contract=off", "-w"], libraries=["m"])
command = build_ext(Distribution({"ext_modules": cythonize([extension], quiet=True)}))
command.build_lib, command.build_temp = ".", "build"
command.ensure_finalized()
command.run()
"""


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """The kernels above: as Python, and compiled by the same files that the core is made of."""
    command = shlex.split(sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(command) is None or not (PACKAGE / "_compiled_judges.pyx").exists():
        pytest.skip("there is no C compiler, or no source of the core")
    folder = tmp_path_factory.mktemp("toys")
    (folder / "kernels_judges.pxi").write_text(joined(folder, MEANT))
    shutil.copy(PACKAGE / "_head.pxi", folder)
    shutil.copy(PACKAGE / "_compiled_judges.pyx", folder / "toys.pyx")
    subprocess.run([sys.executable, "-c", BUILD], cwd=folder, check=True, capture_output=True)
    found = spec_from_file_location("toys", folder / f"toys{sysconfig.get_config_var('EXT_SUFFIX')}")
    assert found is not None and found.loader is not None
    compiled = module_from_spec(found)
    found.loader.exec_module(compiled)
    space: dict[str, Any] = {"math": math, "NamedTuple": NamedTuple, "scratch": scratch, "prefetch": lambda _, __: None}
    space |= {"bits_of": bits_of, "float_of": float_of, "unrolled": unrolled}
    space |= dict.fromkeys(("entry", "kernel", "large_kernel", "loop"), lambda function: function)
    exec(f"from __future__ import annotations\n{TOYS}{MEANT}", space)  # noqa: S102 - our own code
    names = re.findall(r"^@(?:entry|loop)\ndef (\w+)", MEANT, re.MULTILINE)
    return {name: (space[name], getattr(compiled, f"toys_{name}")) for name in names} | {"Pair": space["Pair"]}


def floats(*numbers: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(numbers, dtype=np.float64)


def ints(*numbers: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(numbers, dtype=np.int64)


NAN = math.nan
CALLS: list[tuple[str, Any, Any]] = [
    # name, arguments, the result (None: whatever Python says)
    ("swap", lambda: (floats(1, 2, 3), 0, 2), None),
    ("index_that_moves", lambda: (floats(1, 2), ints(1, 2, 3)), 1),
    ("same_memory", lambda: (floats(1, 2, 3, 4),), 2.0),
    ("from_the_end", lambda: (floats(1, 2, 3, 4), ints(8, 9)), 4.5 + 20.0 + 900.0),
    ("parts", lambda: (floats(1, 2, 3, 4, 5), 1, 4), 3.0 + 20.0 + 300.0 + 3.0),
    ("tuples", lambda: (floats(5, 3, 2),), None),
    ("tuples", lambda: (floats(0.5, 0.75, 0.25),), None),
    *(("numbers", lambda a=a: a, None) for a in [(0.3, 0.7, 2), (0.7, 0.3, 5), (-1.5, 1e15, 3), (0.5, 0.5, -1)]),
    *(("whole_numbers", lambda a=a: a, None) for a in [(7, 2), (10**9, 7), (3, 10), (0, 1)]),
    ("constants", lambda: (3,), (0.375 + 0.75 * math.e, 3 * 4294967298, 0.5)),
    *(
        ("least_and_most", lambda a=a: a, None)
        for a in [(1.0, 2.0), (NAN, 1.0), (1.0, NAN), (-0.0, 0.0), (0.0, -0.0), (math.inf, NAN)]
    ),
    ("loops", lambda: (7, floats(1, 2, 3, 4, 5, 6, 7)), None),
    ("written_out", lambda: (floats(1, 2, 3),), 10.0 + 1.0 + 2.0 + 20.0 + 4.0 + 30.0),
    *(("bits", lambda a=a: (a,), None) for a in (1.0, -0.0, -1.5, 5e-324, 1e308, math.inf)),
    ("bits", lambda: (6.0,), (1025, 1.5)),
    ("scratches", lambda: (1.5,), 6.0),
    ("tables", lambda: (np.ones((2, 3)), np.full((2, 3, 2, 1), 0.5), ints(0, 0)), None),
    ("kinds", lambda: (np.zeros(3), ints(1, 2, 3), ints(4, 5, 6).astype(np.int32), np.uint8([7, 8, 9]), 1), None),
]


@pytest.mark.xdist_group("toys")
@pytest.mark.parametrize(("name", "arguments", "result"), CALLS, ids=[call[0] for call in CALLS])
def test_c_means_what_python_means(name: str, arguments: Any, result: Any, toys: Any) -> None:
    found = called_twice(*toys[name], *arguments())
    assert result is None or found == result


@pytest.mark.xdist_group("toys")
def test_structs_are_passed_by_value(toys: Any) -> None:
    for sure in (False, True):
        given = toys["Pair"](0.25, 3, floats(1, 2, 3), sure)
        assert called_twice(*toys["structs"], given) == (2.75, 4, not sure)
        assert given.values[0] == 0.5 and given.share == 0.25


@pytest.mark.xdist_group("toys")
def test_what_kernels_are_not_given(toys: Any) -> None:
    """An array of another type, shape or layout is refused before anything is done."""
    swap = toys["swap"][1]
    for bad in (np.zeros(3, dtype=np.float32), ints(1, 2, 3), np.zeros((3, 1)), np.zeros(3).astype(">f8"), b"12345678"):
        with pytest.raises(TypeError, match="v must be a contiguous array of d of 8 bytes, got"):
            swap(bad, 0, 1)
    with pytest.raises(ValueError, match="not C-contiguous"):
        swap(np.zeros(6)[::2], 0, 1)
    for bad in ([1.0, 2.0], 3.0, None):
        with pytest.raises(TypeError):
            swap(bad, 0, 1)
    with pytest.raises(TypeError):
        swap(np.zeros(3), 0.5, 1)
    with pytest.raises(AttributeError, match="share"):
        toys["structs"][1]((0.25, 3, floats(1), True))
    assert toys["swap"][1](np.zeros(2), 0, 1) is None
