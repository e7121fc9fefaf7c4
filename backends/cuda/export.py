"""All passes of a call as CUDA files that need nothing of sparsegen: kernels, tables, a launcher in C, its header."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsegen._version import __version__
from sparsegen.ir import warp as w
from sparsegen.ir.expr import Value
from sparsegen.ir.module import Module
from sparsegen.ir.symbols import symbol
from sparsegen.ir.tensor_copy import tensor_maps
from sparsegen.ir.types import Buffer, DType

from .arch import needed_arch
from .expr_c import float_literal, literal, register_type
from .frame import fill, param_type, translation_unit
from .names import Names, comment
from .tensor_map import L2_128_BYTES, numbers

_ALIGN: Final = 256  # of what lies in the workspace, in bytes: as cudaMalloc aligns
_WIDTH: Final = 110


class Array(NamedTuple):
    """An array that the launcher is given, in device memory.

    ``align``: bytes that its address must be a multiple of; ``about``: what it holds, for a reader of the header.
    """

    name: str
    dtype: DType
    size: int
    align: int
    written: bool
    about: str


class Room(NamedTuple):
    """An array in the workspace; ``zero``: it must be so before a call; ``scalars``: it has those of all time steps."""

    name: str
    nbytes: int
    zero: bool
    scalars: bool = False


class Scalars(NamedTuple):
    """The numbers that the launcher is given, in memory of the host: these of each of so many time steps; of steps
    ``backwards`` those of the last one first."""

    names: tuple[str, ...]
    steps: int
    dtype: DType
    backwards: bool = False


class Now(NamedTuple):
    """The scalars of so many time steps, from the next one on, by value."""

    steps: int


class Rows(NamedTuple):
    """An array from the rows of the next time steps on, each of ``size`` elements; where the last ones come first, it
    is ``last`` rows that are before those of the first pass."""

    name: str
    size: int
    last: int | None = None


#: What a launch passes for a parameter: the name of an array or of a room, rows of one, a constant, or scalars.
Argument: TypeAlias = "str | Rows | npt.NDArray[Any] | Now"


class Call(NamedTuple):
    """A launch of a function; ``done``: time steps that are done with it, of the last launch of a pass that takes
    scalars or rows."""

    func: w.Func
    args: tuple[Argument, ...]
    done: int = 0


class Loop(NamedTuple):
    """Launches, one after another, all of them ``times`` times; ``about``: what they do, in a few words."""

    times: int
    calls: tuple[Call, ...]
    about: str


class Files(NamedTuple):
    """The text of the CUDA file, and of the header for those who call it."""

    cuda: str
    header: str


def export_files(
    name: str,
    given: Sequence[Array],
    rooms: Sequence[Room],
    loops: Sequence[Loop],
    *,
    title: str,
    notes: Iterable[str] = (),
    arch: str | None = None,
    scalars: Scalars | None = None,
) -> Files:
    """``int NAME_run(arrays..., scalars, void* workspace, cudaStream_t stream)``, which returns a ``cudaError_t``.

    It makes all launches of ``loops``; what it is given and does not write is const.  ``NAME_workspace_bytes()`` says
    how large the workspace is, which holds anything at first.
    """
    name, notes = identifier(name), list(notes)
    heads = [comment(line) for line in (title, *(line for note in notes for line in note.split("\n")))]
    unit = _Unit(name, [a.name for a in given], [r.name for r in rooms], len(scalars.names) if scalars else 0)
    parts = [{"times": loop.times, "calls": [unit.call(c) for c in loop.calls], "about": comment(loop.about)}
             for loop in loops]  # fmt: skip
    funcs = tuple(unit.funcs.values())
    arrays = [{"name": unit.arrays[a.name], "type": _interface(a), "align": a.align, "empty": not a.size,
               "lines": _described(unit.arrays[a.name], a)} for a in given]  # fmt: skip
    places, at = [], 0
    for room in rooms:
        places.append({**room._asdict(), "name": unit.arrays[room.name], "offset": at})
        at += -(-room.nbytes // _ALIGN) * _ALIGN
    own = (arch or needed_arch(funcs)).removeprefix("sm_")
    numbers = None
    if scalars:
        numbers = _scalars(unit.scalars, scalars, any(room.scalars for room in rooms))
    counted = any(call.done for loop in loops for call in loop.calls)
    facts = {"name": name, "arrays": arrays, "nbytes": at, "arch": own, "align": _ALIGN, "scalars": numbers}
    header = fill("export.h.j2", heads=heads, version=__version__, **facts)
    text = translation_unit(Module(name, funcs), title=title, notes=notes, arch=arch)
    cuda = fill("export.cu.j2", unit=text, places=places, tables=list(unit.tables.values()), loops=parts,
                funcs=funcs, maps=unit.maps, counted=counted, promotion=L2_128_BYTES, **facts)  # fmt: skip
    return Files(cuda, header)


def identifier(name: str) -> str:
    """The name, or a C identifier like it that does not begin with ``_``."""
    out = re.sub(r"\W", "_", name, flags=re.ASCII)
    return out if out and not out[0].isdigit() and not out.startswith("_") else f"k{out}"


@dataclass
class _Unit:
    """The names in a file, each used once, and its tables."""

    name: str
    given: Sequence[str]
    rooms: Sequence[str]
    count: int  #: of the scalars of a time step
    funcs: dict[int, w.Func] = field(default_factory=dict)
    tables: dict[tuple[bytes, str, str], dict[str, Any]] = field(default_factory=dict)
    #: Of each tensor map what it is made of: the matrix, and how it lies.  Its value is its name.
    maps: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._used = {
            "workspace",
            "stream",
            "i",
            "how",
            "together",
            "step",
            *(f"{self.name}_{x}" for x in ("run", "workspace_bytes", "map", "rows")),
        }
        self._names = Names(frozenset(self._used))
        self.arrays = {n: self._free(n) for n in self.given}
        self.arrays |= {n: self._free(f"s_{n}") for n in self.rooms}
        self.scalars = self._free("scalars") if self.count else ""

    def _free(self, wanted: str) -> str:
        """A name like the wanted one that nothing else in the file has."""
        names = (wanted if i == 1 else f"{wanted}_{i}" for i in range(1, len(self._used) + 2))
        found = next(n for n in names if n not in self._used)
        self._used.add(found)
        return self._names.declare(f"@{found}")

    def call(self, call: Call) -> dict[str, Any]:
        """The launch in C."""
        func = self._function(call.func)
        args = [self._argument(p, arg) for p, arg in zip(func.params, call.args, strict=True)]
        by_name = dict(zip((p.name for p in func.params), args, strict=True))
        for buf, m in tensor_maps(func):
            what = by_name[buf.name], numbers(buf.dtype, m)
            if what not in self.maps:
                self.maps[what] = self._free(f"map_{buf.name}")
            args.append(self.maps[what])
        return {"func": func, "args": ", ".join(args), "done": call.done}

    def _function(self, func: w.Func) -> w.Func:
        """The function under a name of its own: programs may call theirs alike, and so may other exported files."""
        if id(func) not in self.funcs:
            mine = func.symbol.startswith(self.name)
            wanted = func.symbol if mine else symbol(f"{self.name}_{func.symbol}")
            self.funcs[id(func)] = replace(func, symbol=self._free(wanted))
        return self.funcs[id(func)]

    def _argument(self, p: Buffer | Value, arg: Argument) -> str:
        if isinstance(arg, Now):
            assert isinstance(p, Buffer)  # a table by value
            return f"{self.name}_rows<{param_type(p, p.dtype.c)}>({self.scalars} + step * {self.count})"
        if isinstance(arg, Rows):
            before = "step" if arg.last is None else f"({arg.last} - step)"
            return f"({p.dtype.c}*){self.arrays[arg.name]} + {before} * {arg.size}"
        if isinstance(arg, str):
            return f"({p.dtype.c}*){self.arrays[arg]}"
        if isinstance(p, Value):
            return _number(arg[0], p.dtype)
        key = arg.tobytes(), p.dtype.name, p.space
        if key not in self.tables:
            self.tables[key] = _table(self._free(f"{self.name}_{p.name}"), p, arg)
        table = self.tables[key]["name"]
        return table if p.space == "param" else f"({p.dtype.c}*)p_{table}"


def _scalars(name: str, of: Scalars, copied: bool) -> dict[str, Any]:
    """How the launcher takes them by a name; ``copied``: to the device, in the order of the stream."""
    count, c = len(of.names), of.dtype.c
    read = "copied in the order of the stream: keep them until it is through, and as long as a graph that captured it"
    each = "of each time step, the last one first," if of.backwards else "of each time step"
    text = f"{name}: in memory of the host, {of.steps} x {count} of {c}: {each} {', '.join(of.names)}; "
    lines = _wrapped(text + (read if copied else "read before the call returns"))
    return {"name": name, "type": f"const {c}*", "by_value": not copied, "lines": lines}


def _table(name: str, p: Buffer, data: npt.NDArray[Any]) -> dict[str, Any]:
    if p.space == "param":
        declared = f"static const {param_type(p, p.dtype.c)} {name}"
        rows = ["{", *_rows(_number(x, p.dtype) for x in data), "}"]
    else:  # 16-bit floats have no constant initialiser on the device: their bits do
        bits = _half(p.dtype)
        declared = f"static __device__ __align__(16) const {'unsigned short' if bits else p.dtype.c} {name}[{p.size}]"
        rows = _rows((str(int(x)) for x in data.view(np.uint16)) if bits else (_number(x, p.dtype) for x in data))
    return {"declared": declared, "name": name, "rows": rows, "in_memory": p.space != "param"}


def _half(dtype: DType) -> bool:
    return dtype.kind == "float" and dtype.bits == 16


def _interface(a: Array) -> str:
    """The type of an argument in plain C, which has no 16-bit floats."""
    return f"{'' if a.written else 'const '}{'void' if _half(a.dtype) else a.dtype.c}*"


def _described(name: str, a: Array) -> list[str]:
    what = f"{a.size} elements of {a.dtype if _half(a.dtype) else a.dtype.c}, {'written' if a.written else 'read'}"
    return _wrapped(f"{name}: {a.about}; {what}; at a multiple of {a.align} bytes")


def _wrapped(text: str) -> list[str]:
    """In lines of a comment."""
    return wrap(comment(text), _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _number(x: Any, dtype: DType) -> str:
    if dtype.kind != "float":
        return literal(int(x), register_type(dtype)).text
    value = float(x)
    if np.isfinite(value):
        return float_literal(value, dtype)
    return f"({dtype.c})NAN" if np.isnan(value) else f"({dtype.c}){'-' if value < 0 else ''}INFINITY"


def _rows(numbers: Iterable[str]) -> list[str]:
    """The numbers with commas, in lines of text."""
    return wrap(" ".join(f"{n}," for n in numbers), _WIDTH, break_long_words=False, break_on_hyphens=False)
