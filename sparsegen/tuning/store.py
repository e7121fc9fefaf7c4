"""What was measured, remembered: a file of JSON for each problem, beside the cubins, that many processes may share.

A file is written aside and renamed, so a reader sees all of it or nothing, and of two writers the later one stays.
What cannot be read, was changed, was written by another FORMAT, or is of another problem counts as absent.  There are
at most LIMIT files: those that nobody asked for the longest go first.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparsegen import files
from sparsegen.backends.cuda.cache import default_folder
from sparsegen.explain.units import seconds
from sparsegen.tuning.problem import Facts, key, title

#: Changes whenever a record's fields or their meaning do.
FORMAT = 2
#: Records kept at most; one takes a few KB.
LIMIT = 1000
_SUFFIX = ".json"


@dataclass(frozen=True)
class Trial:
    """One candidate: its line, the model's and the measured seconds of a call, or why none could be measured."""

    schedule: str
    predicted: float
    measured: float | None
    spread: float | None = None
    failed: str | None = None


@dataclass(frozen=True)
class Record:
    """The fastest schedule of a problem and how that was found; ``top``: how many candidates were asked for."""

    problem: Facts
    schedule: str
    measured: float
    predicted: float
    date: str
    top: int
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        return (
            f"{title(self.problem)}: {self.schedule}; {seconds(self.measured)}, predicted {seconds(self.predicted)} "
            f"({self.date})"
        )


def folder() -> Path:
    """Where the records are: in the cache's folder, which SPARSEGEN_CACHE_DIR moves."""
    return default_folder() / "tuned"


def path_of(problem: Facts) -> Path:
    """Where a problem's record is or would be."""
    return folder() / (key(problem) + _SUFFIX)


def recall(problem: Facts) -> Record | None:
    """What was measured for a problem; None if nothing was, or nothing that can be read."""
    path = path_of(problem)
    found = _read(path)
    if found is not None:
        with contextlib.suppress(OSError):
            os.utime(path)
    return found


def remember(record: Record) -> bool:
    """Keep a record, in place of the problem's earlier one; False, and a warning, if it cannot be written."""
    path = path_of(record.problem)
    try:
        whole = {"format": FORMAT, "digest": key(asdict(record)), "record": asdict(record)}
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, [json.dumps(whole, indent=1).encode()])
    except OSError as error:
        warnings.warn(
            f"sparsegen cannot write in {path.parent} ({error}): what was tuned is measured anew next time. Set "
            "SPARSEGEN_CACHE_DIR to a folder that can be written.",
            RuntimeWarning,
            stacklevel=3,
        )
        return False
    files.remove(_files()[:-LIMIT])
    return True


def records() -> Iterator[Record]:
    """All that can be read, the most recently used last."""
    yield from filter(None, map(_read, _files()))


def clear() -> int:
    """Forget everything; how many records there were, those that could not be read included."""
    return files.remove(_files())


def _files() -> list[Path]:
    """All records, the least recently used first; leftovers of dead writers are removed on the way."""
    return [path for _, _, path in files.entries(folder(), _SUFFIX)]


def _read(path: Path) -> Record | None:
    """The record of a file; None for one that is not ours, not whole, or not of the problem that it is named after."""
    try:
        found = json.loads(files.content(path))
        given = found["record"]
        if found["format"] != FORMAT or found["digest"] != key(given):
            return None
        fields: dict[str, Any] = {**given, "trials": tuple(Trial(**trial) for trial in given["trials"])}
        record = Record(**fields)
        return record if path.stem == key(record.problem) else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
