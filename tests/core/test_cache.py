"""Compiled kernels are code: only what nobody else can have written is read."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import JIT_OFF
from fresh import fresh

from calibeat.core import cache

OTHER = 54_321  # some other user


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; the package itself cannot be written to."""
    monkeypatch.setattr(cache, "_chosen_by_user", lambda: "")
    monkeypatch.setattr(cache, "_BESIDE", tmp_path / "package")
    (tmp_path / "package").touch()  # so that no folder can be made there
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_file_that_is_written_can_be_read(home: Path) -> None:
    assert cache.read("a-1") is None and not cache.holds("a-")
    cache.write("a-1", b"code")
    assert cache.read("a-1") == b"code" and cache.holds("a-") and not cache.holds("b-")
    folder = home / "calibeat" / "kernels" / cache.environment()
    assert [path.name for path in folder.iterdir()] == ["a-1"]
    for made in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "a-1").stat().st_mode) == 0o644


def test_a_damaged_file_is_not_believed(home: Path) -> None:
    cache.write("a-1", b"code")
    file = home / "calibeat" / "kernels" / cache.environment() / "a-1"
    whole = file.read_bytes()
    for damaged in (b"", whole[:-1], whole[:40] + b"x" + whole[41:], b"x" + whole[1:]):
        file.write_bytes(damaged)
        assert cache.read("a-1") is None
    file.write_bytes(whole)
    assert cache.read("a-1") == b"code"


def test_beside_the_package_it_is_as_readable_as_the_package(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home.parent / "package").unlink()
    cache.write("a-1", b"code")
    folder = home.parent / "package" / cache.environment()
    assert cache.writable() == folder and stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert not home.exists()
    # Another user reads what the owner of the package has compiled, and writes to a place of his own.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert cache.read("a-1") == b"code" and cache.writable() is None


@pytest.mark.parametrize("planted", ["link", "writable by all", "link above", "writable above", "file"])
def test_a_folder_that_others_can_have_written_to_is_not_used(planted: str, home: Path) -> None:
    cache.write("a-1", b"code")
    folder = home / "calibeat" / "kernels" / cache.environment()
    place = folder.parent if planted.endswith("above") else folder
    if planted.startswith("writable"):
        place.chmod(0o777)
    else:
        elsewhere = place.rename(place.with_name("elsewhere"))
        if planted == "file":
            place.touch()
        else:
            place.symlink_to(elsewhere)
    assert cache.read("a-1") is None and not cache.holds("a-") and cache.writable() is None
    cache.write("a-2", b"code")  # silently: it is compiled again
    assert not cache.holds("a-2")


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can make files of other users")
def test_a_folder_of_another_user_is_not_used(home: Path) -> None:
    cache.write("a-1", b"code")
    folder = home / "calibeat" / "kernels" / cache.environment()
    os.chown(folder, OTHER, OTHER)
    assert cache.read("a-1") is None and cache.writable() is None


def test_the_owner_is_looked_at(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, as any user can test it: it is we who are another user now."""
    cache.write("a-1", b"code")
    monkeypatch.setattr(os, "getuid", lambda: OTHER)
    mine = home.stat().st_uid == 0  # the superuser is believed: nothing is safe from him anyway
    assert (cache.read("a-1") is not None) == mine


@pytest.mark.usefixtures("home")
def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", homeless)
    assert cache.writable() is None and list(cache.readable()) == []


@pytest.mark.usefixtures("home")
def test_the_folder_chosen_by_the_user_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("a-1", b"code")
    monkeypatch.undo()
    monkeypatch.setattr(cache.sys, "modules", {**cache.sys.modules, "numba": None})
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    assert not cache.holds("a-1")
    cache.write("b-1", b"code")
    assert cache.read("b-1") == b"code"
    assert [path.name for path in (tmp_path / "chosen").iterdir()] == [cache.environment()]


def test_folders_and_files_that_nobody_used_for_a_month_go(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("a-1", b"code")
    folder = home / "calibeat" / "kernels" / cache.environment()
    others = {name: folder.with_name(name) for name in ("kernels-0123456789abcdef", "kernels-0" * 2, "mine")}
    recent = folder.with_name("kernels-fedcba9876543210")
    for other in (*others.values(), recent):
        other.mkdir(0o700)
    (others["kernels-0123456789abcdef"] / "a-1").touch()
    old = folder.stat().st_mtime - 31 * 86400
    for path in (*others.values(), folder, folder / "a-1"):
        os.utime(path, (old, old))
    # Being read is being used: the folder and the file are marked.
    assert cache.read("a-1") == b"code"
    assert folder.stat().st_mtime > old + 86400 < (folder / "a-1").stat().st_mtime
    os.utime(folder / "a-1", (old, old))
    monkeypatch.setattr(cache, "environment", lambda: "kernels-aaaaaaaaaaaaaaaa")
    cache.write("b-1", b"code")
    left = {path.name for path in folder.parent.iterdir()}
    assert left == {folder.name, recent.name, "kernels-aaaaaaaaaaaaaaaa", "kernels-0kernels-0", "mine"}
    monkeypatch.undo()
    monkeypatch.setattr(cache, "writable", lambda: folder)
    cache._remove_old_files.cache_clear()
    cache.write("c-1", b"code")
    assert {path.name for path in folder.iterdir()} == {"c-1"}


def test_what_vanishes_meanwhile_is_not_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may remove a folder or a file at any moment."""
    gone = home / "gone"
    assert not cache._is_old(gone) and cache._names_in(gone) == []
    monkeypatch.setattr(cache, "readable", lambda: [gone])
    assert cache.read("a-1") is None and not cache.holds("a-1")


def test_a_program_may_choose_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = SimpleNamespace(config=SimpleNamespace(CACHE_DIR="there"))
    monkeypatch.setitem(cache.sys.modules, "numba", chosen)
    assert cache._chosen_by_user() == "there"


def test_a_disk_that_is_full_is_no_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "atomic", full)
    cache.write("a-1", b"code")
    assert not cache.holds("a-1") and home.exists()


def test_the_name_changes_with_python_numba_llvmlite_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    name = cache.environment.__wrapped__
    names = {name()}
    assert cache._NAME.fullmatch(name())
    for package in ("numba", "llvmlite"):
        with monkeypatch.context() as patch:
            patch.setattr(cache, "_version", lambda each, package=package: "0.1" if each == package else "1")
            names.add(name())
    with monkeypatch.context() as patch:
        patch.setattr(cache.sys, "version", "3.99")
        names.add(name())
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    names.add(name())
    assert len(names) == 5
    assert cache._version("no-such-package") == ""


@pytest.mark.skipif(JIT_OFF, reason="about compiled kernels")
def test_a_planted_folder_runs_no_code(tmp_path: Path) -> None:
    """The attack of a shared temporary folder: no home, a package that cannot be written to, a pickle that waits."""
    program = f"""
from pathlib import Path
import numpy as np, toy_kernels
from calibeat.core import cache, jit
cache._BESIDE = Path({str(tmp_path)!r}) / "nowhere" / "to be" / "found"
(cache._BESIDE.parent.parent).touch()
def homeless():
    raise RuntimeError
Path.home = homeless
print(jit._linker._title("entry", toy_kernels.sum_of_squares))
print(jit.compiled(toy_kernels.sum_of_squares)(np.ones(3)), list(cache.readable()), cache.writable())
"""
    settings = {"TMPDIR": str(tmp_path), "HOME": ""}
    unset = ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
    title, before = fresh(program, unset=unset, **settings).splitlines()
    for folder in (tmp_path / "calibeat", tmp_path / "calibeat" / "kernels"):
        planted = folder / cache.environment()
        planted.mkdir(parents=True)
        for name in (title, f"{title}-0123456789abcdef"):
            (planted / name).write_bytes(pickle.dumps(Trap(str(tmp_path / "sprung"))))
    assert fresh(program, unset=unset, **settings).splitlines() == [title, before]
    assert before == "3.0 [] None"
    assert not (tmp_path / "sprung").exists()


class Trap:
    """A pickle that makes a file when it is read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path(self.path),)
