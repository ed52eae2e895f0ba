"""Output onto links, devices, pipes and streams: what is there stays what it is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kvplan.cli import main
from kvplan.errors import KvplanError
from kvplan.files.writing import write_new, write_whole

POSIX = pytest.mark.skipif(os.name == "nt", reason="links, pipes and devices of a Unix")
PLAN = Path(__file__).resolve().parents[2] / "examples" / "plans"


def kinds(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IFMT(path.lstat().st_mode) for path in folder.iterdir()}


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_whole(path, "one\n")
    path.chmod(0o600)
    write_whole(path, "two\n")
    assert path.read_bytes() == b"two\n"
    assert os.name == "nt" or stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(kinds(tmp_path)) == ["a"]


@POSIX
@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link(tmp_path: Path, there: bool) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    if there:
        target.write_text("old")
    link.symlink_to(Path("folder") / "target")
    write_whole(link, "new")
    assert (link.is_symlink(), target.read_text()) == (True, "new")
    assert list(kinds(target.parent)) == ["target"]


@POSIX
def test_a_pipe_is_written_through(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    before = kinds(tmp_path)
    for write in (write_whole, write_new):
        got: list[bytes] = []
        reader = threading.Thread(target=lambda got=got: got.append(pipe.read_bytes()), daemon=True)
        reader.start()
        write(pipe, "text")
        reader.join(30)
        assert got == [b"text"]
    assert kinds(tmp_path) == before


@POSIX
def test_a_device_stays_a_device(tmp_path: Path) -> None:
    """A link to /dev/null, so that a failure replaces the link and not the machine's device."""
    for name in ("null", "full"):
        device = Path("/dev") / name
        if not device.is_char_device():
            pytest.skip("no such device")
        link = tmp_path / name
        link.symlink_to(device)
        if name == "full":
            with pytest.raises(KvplanError, match="cannot be written"):
                write_whole(link, "text")
        else:
            write_whole(link, "text")
        assert (link.is_symlink(), device.is_char_device()) == (True, True)


@POSIX
@pytest.mark.parametrize(("stream", "append"), [("/dev/stdout", ">"), ("/dev/fd/1", ">>")])
def test_a_stream_is_written_in_its_turn(tmp_path: Path, stream: str, append: str) -> None:
    """Opened by its name, a file behind it would be cut off, or replaced under the shell's feet."""
    code = (
        "from kvplan.files.writing import write_whole; from pathlib import Path\n"
        f"write_whole(Path({stream!r}), 'b\\n'); print('c')"
    )
    log = tmp_path / "log"
    log.write_text("a\n")
    with log.open("ab" if append == ">>" else "wb") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert log.read_text() == ("a\nb\nc\n" if append == ">>" else "b\nc\n")


@POSIX
def test_commands_write_through_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = next(path for path in sorted(PLAN.glob("*.yaml")))
    for words in (["export", str(plan), "-o"], ["check", str(plan), "--format", "json", "--output"]):
        link, target = tmp_path / f"{words[0]}-link", tmp_path / f"{words[0]}-target"
        link.symlink_to(target)
        main([*words, str(link)])
        assert link.is_symlink(), words
        assert target.stat().st_size > 100
    capsys.readouterr()


def test_what_cannot_be_written(tmp_path: Path) -> None:
    for name in (tmp_path, tmp_path / "none" / "x", tmp_path / ("x" * 300), tmp_path / "a\0b"):
        for write in (write_whole, write_new):
            if write is write_new and name.parent.name == "none":
                continue
            with pytest.raises(KvplanError) as caught:
                write(name, "x")
            assert caught.value.code in ("cannot-write", "file-exists")
    assert kinds(tmp_path) == {}


def test_a_new_file_is_new(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a"
    write_new(path, "one")
    with pytest.raises(KvplanError) as caught:
        write_new(path, "two")
    assert (caught.value.code, path.read_text()) == ("file-exists", "one")


def test_a_new_file_that_fails_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kvplan.files.writing.os.fsync", full)
    with pytest.raises(KvplanError, match="No space left on device"):
        write_new(tmp_path / "a", "one")
    assert kinds(tmp_path) == {}
