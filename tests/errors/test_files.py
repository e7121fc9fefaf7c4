"""Files that users name are written whole or not at all, and what cannot be written says why and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen import files
from sparsegen.cli.files import save

K = sg.compile(
    sg.Stencil.from_weights(np.ones((3, 3)) / 9), (16, 32), device="h200", backend="emulator", schedule="direct"
)
W = sg.sparse(np.eye(16, dtype=np.float16))


def written(path: Any) -> None:
    """As the command line writes a result."""
    save(path, b"data")


#: Everything that writes what a user asks for, and its error.
WRITERS: tuple[tuple[Callable[[Any], Any], type[sg.SparsegenError]], ...] = (
    (K.export, sg.ArrayError),
    (K.explain().save, sg.ArrayError),
    (W.save, sg.FormatError),
    (written, sg.ArrayError),
)


@pytest.mark.parametrize(("write", "kind"), WRITERS)
def test_what_names_no_file(write: Callable[[Any], Any], kind: type[sg.SparsegenError], tmp_path: Path) -> None:
    for path in (None, 3, True, b"\0", "", "a\0b.txt", [], 1.5, tmp_path / "a\0.txt"):
        with pytest.raises(kind) as caught:
            write(path)
        assert "names no file" in str(caught.value) and caught.value.hint


@pytest.mark.parametrize(("write", "kind"), WRITERS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, None])
def test_a_write_that_fails_leaves_the_old_file(
    write: Callable[[Any], Any], kind: type[sg.SparsegenError], number: int | None, tmp_path: Path, monkeypatch: Any
) -> None:
    """Also where it fails after a part: the folder is as it was."""
    file = tmp_path / "a.txt"
    file.write_text("old")

    def full(_: Any) -> None:
        raise OSError(number, os.strerror(number)) if number else KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(kind if number else KeyboardInterrupt) as caught:
        write(file)
    assert file.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]
    if isinstance(caught.value, sg.SparsegenError):
        wanted = "free some space" if number in (errno.ENOSPC, errno.EDQUOT) else "may be written to"
        assert f"cannot write {file}: {os.strerror(number or 0)}" in str(caught.value)
        assert wanted in str(caught.value.hint)


@pytest.mark.parametrize(("write", "kind"), WRITERS)
def test_what_cannot_be_a_file(write: Callable[[Any], Any], kind: type[sg.SparsegenError], tmp_path: Path) -> None:
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "round.txt").symlink_to(tmp_path / "round.txt")
    (tmp_path / "file").write_text("")
    for name in ("folder.txt", "none/a.txt", "file/a.txt", "a" * 300 + ".txt"):
        with pytest.raises(kind) as caught:
            write(tmp_path / name)
        assert caught.value.hint
    assert {p.name for p in tmp_path.iterdir()} == {"folder.txt", "round.txt", "file"}


@pytest.mark.parametrize(("write", "kind"), WRITERS)
def test_a_link_stays_one(write: Callable[[Any], Any], kind: type[sg.SparsegenError], tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "there" / "a.txt")
    write(tmp_path / "link.txt")
    assert (tmp_path / "link.txt").is_symlink() and (tmp_path / "there" / "a.txt").stat().st_size > 0
    assert os.listdir(tmp_path / "there") == ["a.txt"]


def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), tmp_path / "none"):
        with pytest.raises(OSError):
            files.content(path)
        with pytest.raises(sg.FormatError) as caught:
            sg.load(path)
        assert "cannot be read" in str(caught.value) and caught.value.hint


def test_the_command_line_writes_to_devices() -> None:
    save("/dev/null", b"data")
    reader, writer = os.pipe()
    save(f"/dev/fd/{writer}", b"data")
    assert os.read(reader, 9) == b"data"
    os.close(reader)
    os.close(writer)
    with pytest.raises(sg.ArrayError, match="is no file"):
        K.export("/dev/null")
