"""The atomic writer: a file is the old one or the new one, whole; nothing else is touched, nothing is left behind."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from calibeat._util.files import atomic, atomic_files, obstacle, open_regular, sweep
from calibeat.errors import InvalidInput


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


def special_files(folder: Path) -> dict[str, Path]:
    """What a target may be beside a file, by what it is called. No device of the system is among them."""
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    found = {"the folder": folder / "folder", "the FIFO": folder / "pipe", "the socket": folder / "socket"}
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    if os.getuid() == 0:
        os.mknod(folder / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.mknod(folder / "disk", 0o666 | stat.S_IFBLK, os.makedev(7, 200))
        found |= {"the device": folder / "null", "the disk": folder / "disk"}
    return found


def test_what_is_no_regular_file_is_never_replaced(tmp_path: Path) -> None:
    for what, path in special_files(tmp_path).items():
        link = path.with_name(f"link-to-{path.name}")
        link.symlink_to(path.name)
        before = path.lstat()
        for target in (path, link):
            found = what.replace("disk", "device")
            sentence = f"^output must be a file, got {found} '{target}'$"
            assert obstacle(target) == found
            with pytest.raises(InvalidInput, match=sentence), atomic(target):
                pytest.fail("it must be refused before the work")
        after = path.lstat()
        assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode) and link.is_symlink()
    assert not list(tmp_path.glob(".*"))


def test_what_became_no_regular_file_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(InvalidInput, match="output must be a file, got the FIFO"), atomic(path) as file:  # noqa: PT012
        file.write(b"new")
        path.unlink()
        os.mkfifo(path)
    assert stat.S_ISFIFO(path.lstat().st_mode) and names(tmp_path) == ["a"]


def test_links_to_what_a_process_has_open_are_refused(tmp_path: Path) -> None:
    """As /dev/stdout is. It is never replaced, whatever the standard output is."""
    program = """
import os, sys
from calibeat._util.files import atomic
try:
    with atomic(sys.argv[1]):
        pass
except ValueError as error:
    print(error, file=sys.stderr)
"""
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    (tmp_path / "again").symlink_to("stdout")
    for name in ("stdout", "again"):
        with (tmp_path / "output.txt").open("w") as output:
            command = [sys.executable, "-c", program, str(tmp_path / name)]
            done = subprocess.run(command, check=True, stdout=output, stderr=subprocess.PIPE, text=True)
        assert done.stderr == f"output must be a file, got the open stream '{tmp_path / name}'\n"
    assert str((tmp_path / "stdout").readlink()) == "/proc/self/fd/1"
    assert obstacle(Path("/proc/self/fd/1")) == "the open stream"


def test_links_that_lead_nowhere_are_replaced_and_loops_are_not(tmp_path: Path) -> None:
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "loop").symlink_to("loop")
    with atomic(tmp_path / "nowhere", "w") as file:
        file.write("new")
    assert (tmp_path / "nowhere").read_text() == "new" and not (tmp_path / "nowhere").is_symlink()
    with pytest.raises(OSError, match="symbolic links"), atomic(tmp_path / "loop"):
        pass
    assert names(tmp_path) == ["loop", "nowhere"]


def test_a_path_that_no_system_takes(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"path must have no NUL, got '.*a\\x00b'"), atomic(f"{tmp_path}/a\0b"):
        pass
    with pytest.raises(InvalidInput, match="path must have no NUL"):
        open_regular(tmp_path / "a\0b", "log")


def test_only_regular_files_are_read_and_nothing_waits_for_a_writer(tmp_path: Path) -> None:
    for what, path in special_files(tmp_path).items():
        with pytest.raises(InvalidInput, match=f"^log must be a file, got {what.replace('disk', 'device')} '{path}'$"):
            open_regular(path, "log")
    (tmp_path / "a").write_text("whole")
    (tmp_path / "link").symlink_to("a")
    with open_regular(tmp_path / "link", "log") as file:
        assert file.read() == b"whole"
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "gone", "log")


def test_a_fifo_that_takes_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, really_open = tmp_path / "a", os.open
    path.write_text("whole")

    def swapped(*arguments: object) -> int:
        path.unlink()
        os.mkfifo(path)
        return really_open(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(InvalidInput, match="log must be a file, got the FIFO"):
        open_regular(path, "log")


def test_several_files_appear_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("old")
    with atomic_files([one, two]) as files:
        for file in files:
            file.write(b"new")
        assert one.read_text() == "old" and not two.exists()
    assert one.read_text() == two.read_text() == "new" and names(tmp_path) == ["one", "two"]


def test_several_files_are_refused_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("old")
    for wrong in (ValueError, KeyboardInterrupt):
        seen: list[str] = []

        def check(*parts: Path, wrong: type[BaseException] = wrong, seen: list[str] = seen) -> None:
            seen.extend(part.read_text() for part in parts)
            raise wrong

        with pytest.raises(wrong), atomic_files([one, two], check=check) as files:
            [file.write(b"new") for file in files]
        assert seen == ["new", "new"] and one.read_text() == "old" and names(tmp_path) == ["one"]


@pytest.mark.parametrize("links", [True, False], ids=["", "no hard links"])
def test_a_file_that_cannot_be_replaced_undoes_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    """A folder with a sticky bit lets us make a file, and not replace that of another user."""
    folders = [tmp_path / name for name in ("a", "b", "sticky")]
    for folder in folders:
        folder.mkdir()
    old, new, foreign = folders[0] / "old", folders[1] / "new", folders[2] / "foreign"
    old.write_text("old")
    foreign.write_text("foreign")
    replace = Path.replace

    def refused(path: Path, target: Path) -> Path:
        if target == foreign:
            raise PermissionError(1, "Operation not permitted")
        return replace(path, target)

    def unsupported(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(Path, "replace", refused)
    if not links:
        monkeypatch.setattr(os, "link", unsupported)
    with pytest.raises(PermissionError), atomic_files([old, new, foreign]) as files:
        [file.write(b"new") for file in files]
    # Without hard links the old file cannot be kept at hand: it stays replaced, and is whole.
    assert old.read_text() == ("old" if links else "new") and foreign.read_text() == "foreign"
    assert [names(folder) for folder in folders] == [["old"], [], ["foreign"]]


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
    with pytest.raises(FileNotFoundError, match=r"the folder .*/no does not exist, make it first: '.*/no/a'$"):
        atomic(tmp_path / "no" / "a", "w").__enter__()


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
