"""Checkpoints of runs: one file with the arrays of all fields, written whole or not at all, read by the same kernel.

A ``.npz`` file has an array for each time level of each field, called ``u.0``, ``u.1``, ..., and ``about``: JSON that
says of which problem, after which time step, and by which schedule they were made.  A ``.zarr.zip`` file is a group of
the same arrays; a Zarr store of many files could not be replaced at once.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparsegen.callsite import warn
from sparsegen.files import opened, path_of, whole
from sparsegen.ir.errors import RunError
from sparsegen.run.host import HostArray

#: What ``about`` begins with; another version would have another.
_KIND: Final = "sparsegen checkpoint 1"
_ABOUT: Final = "about"
#: What users call the parts of a problem's identity.
_CALLED: Final = {"weights": "formula", "extents": "formula", "what": "formula", "sides": "boundary"}

Arrays = Mapping[str, HostArray]


def _save_npz(path: Path, arrays: Arrays) -> None:
    held: dict[str, Any] = dict(arrays)
    with open(path, "xb") as file:
        np.savez(file, **held)


def _load_npz(path: Path) -> dict[str, HostArray]:
    with opened(path) as file, np.load(file, allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


def _save_zarr(path: Path, arrays: Arrays) -> None:
    zarr: Any = import_module("zarr")
    store = zarr.storage.ZipStore(str(path), mode="x")
    group = zarr.open_group(store, mode="w")
    for name, array in arrays.items():
        group[name] = array
    store.close()


def _load_zarr(path: Path) -> dict[str, HostArray]:
    zarr: Any = import_module("zarr")
    with opened(path) as file, zipfile.ZipFile(file) as held:
        if held.testzip() is not None:
            raise zipfile.BadZipFile
    store = zarr.storage.ZipStore(str(path), mode="r")
    try:
        return {name: np.asarray(array[...]) for name, array in zarr.open_group(store, mode="r").arrays()}
    finally:
        store.close()


#: How files are written and read, by how their names end.
_FORMS: Final[dict[str, tuple[Callable[[Path, Arrays], None], Callable[[Path], dict[str, HostArray]]]]] = {
    ".npz": (_save_npz, _load_npz),
    ".zarr.zip": (_save_zarr, _load_zarr),
}


@dataclass(frozen=True, eq=False)
class State:
    """Where a run is: frames up to ``step`` were handed out, ``arrays`` are those of time step ``at``, which is that
    one or the last one before it that whole passes end with."""

    step: int
    at: int
    arrays: dict[str, HostArray]


class Checkpoints:
    """The file that a run keeps its state in.

    ``identity``: what the run computes; ``how``: by which schedule, where; ``given``: what it reads and never changes;
    ``fields``: the shape and the type of each array.
    """

    def __init__(
        self, path: Any, identity: Mapping[str, Any], how: str, given: Arrays, fields: Mapping[str, Any]
    ) -> None:
        self.path = path_of(path, RunError)
        form = next((ends for ends in _FORMS if self.path.name.endswith(ends)), None)
        if form is None:
            what = f"a checkpoint cannot be {self.path.name}"
            raise RunError(what, hint=f"give it a name that ends with {' or '.join(_FORMS)}")
        if form == ".zarr.zip":
            _zarr()
        self._save, self._load = _FORMS[form]
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._how, self._fields = how, dict(fields)
        self._given = {name: hashlib.sha256(a.tobytes()).hexdigest() for name, a in given.items()}

    def save(self, state: State) -> None:
        """Write the state; RunError where that cannot be done."""
        about = {
            "kind": _KIND, "problem": self._identity, "how": self._how, "given": self._given,
            "step": state.step, "at": state.at,
        }  # fmt: skip
        said = np.frombuffer(json.dumps(about).encode(), np.uint8)
        with whole(self.path, RunError) as temporary:
            self._save(temporary, {_ABOUT: said, **{name: _bits(a) for name, a in state.arrays.items()}})

    def load(self) -> State | None:
        """The state, None where there is no file; RunError for one that is broken or of another run."""
        try:
            found = self._load(self.path)
            about = json.loads(found.pop(_ABOUT).tobytes())
            if about["kind"] != _KIND:
                raise ValueError
            state = State(int(about["step"]), int(about["at"]), self._checked(found, about["problem"]))
            self._same(about)
        except FileNotFoundError:
            return None
        except OSError as e:
            what = f"cannot read the checkpoint {self.path}: {e.strerror or e}"
            raise RunError(what, hint="name a file that can be read") from e
        except RunError:
            raise
        except Exception as e:  # what NumPy, zipfile and zarr raise for a broken file is not listed anywhere
            raise RunError(
                f"{self.path} is no whole checkpoint",
                hint="take a copy of it that is whole, or begin anew, without resume=True",
            ) from e
        return state

    def _checked(self, found: dict[str, HostArray], problem: Mapping[str, Any]) -> dict[str, HostArray]:
        """The arrays as the kernel has them; RunError if they are of another one."""
        own, told = self._identity, {"of"}  # which only sums up the others
        names = [name for name in {**own, **problem} if name not in told]
        other = next((name for name in names if own.get(name) != problem.get(name)), None)
        if other is not None:
            called = _CALLED.get(other, other)
            values = "" if called == "formula" else f": {problem.get(other)} there, {own.get(other)} here"
            raise self._foreign(f"of a kernel of another {called}{values}")
        if {name: (a.shape, a.dtype.itemsize) for name, a in found.items()} != {
            name: (shape, dtype.itemsize) for name, (shape, dtype) in self._fields.items()
        }:
            raise ValueError
        return {name: found[name].view(dtype) for name, (_, dtype) in self._fields.items()}

    def _same(self, about: Mapping[str, Any]) -> None:
        """RunError for other coefficients; a warning where another schedule goes on."""
        changed = [name for name, held in self._given.items() if about["given"].get(name) != held]
        if changed:
            raise self._foreign(f"of a run with another {', '.join(changed)}")
        if about["how"] != self._how:
            what = f"{self.path} was made by {about['how']}, and {self._how} goes on: sums may round otherwise"
            warn(what, RuntimeWarning)

    def _foreign(self, what: str) -> RunError:
        return RunError(
            f"the checkpoint {self.path} is {what}",
            hint="resume with the kernel and the arguments that made it, or name another file",
        )


def _zarr() -> None:
    try:
        import_module("zarr")
    except ImportError as e:
        remedy = "pip install 'sparsegen[run]', or name a file that ends with .npz"
        raise RunError("a .zarr.zip file needs zarr, which is not installed", hint=remedy) from e


def _bits(a: HostArray) -> HostArray:
    """The array, or of a type that NumPy's files do not know, bfloat16, its bits."""
    return a.view(f"u{a.dtype.itemsize}") if a.dtype.kind == "V" else a
