"""The atomic writer: a file is the old one or the new one, whole; nothing else is touched, nothing is left behind."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from calibeat._util import files
from calibeat._util.files import atomic, cache_folder, is_private, sweep


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_new_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "page.txt"
    with atomic(path, "w") as file:
        file.write("first\n")
        assert not path.exists()  # not before the block ends
    with atomic(str(path), "wb") as file:
        file.write(b"second\xff")
        assert path.read_text() == "first\n"
    assert path.read_bytes() == b"second\xff"
    assert names(tmp_path) == ["page.txt"]


def test_text_has_the_same_bytes_everywhere(tmp_path: Path) -> None:
    with atomic(tmp_path / "a", "w") as file:
        file.write("é\nb\n")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa9\nb\n"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_block_that_raises_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(error), atomic(path, "w") as file:  # noqa: PT012 - the block is what is tested
        file.write("half")
        raise error
    assert path.read_text() == "old" and names(tmp_path) == ["a"]


def test_a_check_sees_the_new_file_and_may_refuse_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    seen = []

    def check(part: Path) -> None:
        seen.append(part.read_text())
        if len(seen) == 1:
            raise ValueError("not what was meant")

    with pytest.raises(ValueError, match="not what was meant"), atomic(path, "w", check=check) as file:
        file.write("new")
    assert path.read_text() == "old" and names(tmp_path) == ["a"]
    with atomic(path, "w", check=check) as file:
        file.write("new")
    assert path.read_text() == "new" and seen == ["new", "new"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), atomic(path, "w") as file:
        file.write("new")
    assert path.read_text() == "old" and names(tmp_path) == ["a"]


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o640)
    with atomic(path, "w") as file:
        file.write("new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_has_the_permissions_that_the_user_wants(tmp_path: Path) -> None:
    """The umask is a setting of the process: a child has its own, and the writer must not change it."""
    program = """
import os, sys
from calibeat._util.files import atomic
os.umask(0o027)
with atomic(sys.argv[1], "w") as file:
    file.write("x")
assert os.umask(0o022) == 0o027
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "a")], check=True)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_link_is_replaced_and_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep")
    (tmp_path / "a").symlink_to(tmp_path / "precious")
    with atomic(tmp_path / "a", "w") as file:
        file.write("new")
    assert (tmp_path / "precious").read_text() == "keep"
    assert (tmp_path / "a").read_text() == "new" and not (tmp_path / "a").is_symlink()


def test_a_planted_temporary_name_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "precious").write_text("keep")
    monkeypatch.setattr("secrets.token_hex", lambda _size: "0" * 16)
    (tmp_path / ".a.0000000000000000.part").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError), atomic(tmp_path / "a", "w"):
        pass
    assert (tmp_path / "precious").read_text() == "keep"


def test_long_names(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127)  # 254 bytes: as long as a name may be
    with atomic(path, "w") as file:
        file.write("x")
    assert names(tmp_path) == [path.name]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic(tmp_path / "no" / "a", "w"):
        pass


def test_unfinished_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    old = time.time() - 2 * 3600
    stale, fresh = tmp_path / ".a.0123456789abcdef.part", tmp_path / ".a.fedcba9876543210.part"
    others = [tmp_path / name for name in (".b.0123456789abcdef.part", ".a.part", "a.0123456789abcdef.part")]
    for path in (stale, fresh, *others):
        path.write_text("half")
    for path in (stale, *others):
        os.utime(path, (old, old))
    with atomic(tmp_path / "a", "w") as file:
        file.write("x")
    assert not stale.exists()  # ours, and nobody has touched it for an hour
    assert fresh.exists()  # another writer may be at work
    assert all(path.exists() for path in others)  # not ours
    sweep(tmp_path / "no" / "a")  # nothing to do, nothing to say


def test_a_folder_that_cannot_be_synced_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, calls = os.fsync, []

    def only_files(handle: int) -> None:
        calls.append(handle)
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(22, "Invalid argument")
        sync(handle)

    monkeypatch.setattr(os, "fsync", only_files)
    with atomic(tmp_path / "a", "w") as file:
        file.write("x")
    assert (tmp_path / "a").read_text() == "x" and len(calls) == 2


def test_the_cache_is_below_the_users_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("x") == tmp_path / "calibeat" / "x"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder("x") == tmp_path / ".cache" / "calibeat" / "x"

    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder("x") is None  # never a folder that others may write to


def test_a_private_folder_is_ours_and_nobody_else_may_write_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    assert not is_private(folder)
    folder.mkdir(mode=0o700)
    assert is_private(folder)
    for mode, private in ((0o755, True), (0o775, False), (0o757, False)):
        folder.chmod(mode)
        assert is_private(folder) is private, oct(mode)
    folder.chmod(0o700)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(folder)
    assert not is_private(tmp_path / "file") and not is_private(tmp_path / "link")
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    assert not is_private(folder)  # somebody else's
    monkeypatch.delattr(files.os, "getuid")
    assert is_private(folder)  # Windows, where a profile belongs to its user
