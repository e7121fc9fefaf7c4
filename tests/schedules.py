"""Schedules under test: build a stencil, lower a schedule, run all its launches on the emulator, compare.

Everything a launch must not rely on is poisoned: outputs and workspaces hold NaN and count as uninitialised, the
padding of pitched rows and the cells around both fields hold NaN, and what lies around the output must stay as it was.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsegen.backends import emulator
from sparsegen.backends.emulator import Report
from sparsegen.backends.reference import stencil as reference
from sparsegen.boundary import BoundarySpec, dirichlet, frozen, neumann, periodic
from sparsegen.cost.devices import DeviceProfile, load_profile
from sparsegen.dsl.stencil import Stencil
from sparsegen.ir import warp as w
from sparsegen.ir.module import Module
from sparsegen.ir.node import fields, rewrite
from sparsegen.ir.types import DTYPES, Buffer, sum_type
from sparsegen.pipelines import Program, lower
from sparsegen.problems.stencil import StencilProblem
from sparsegen.schedule import Schedule, StencilSchedule

Field: TypeAlias = npt.NDArray[Any]
#: max|a-b| / max|b| that a schedule may be off by; of 16 bits one rounding, the last of a pass, may go the other way.
TOLERANCE = {"f64": 1e-12, "f32": 1e-5, "f16": 2.0**-10, "bf16": 2.0**-7}
#: A boundary of each kind; and kinds mixed on two axes.
KINDS: dict[str, Any] = {"periodic": periodic, "dirichlet": dirichlet(0.75), "neumann": neumann, "frozen": frozen}
MIXED: Any = {0: (frozen, dirichlet(-1.0)), 1: (neumann, dirichlet(2.0))}
#: Cells before and after a field that belong to someone else (a multiple of 256 bytes, so alignment stays).
GUARD = 64


@cache
def device(name: str = "h200", blocks: int | None = None) -> DeviceProfile:
    """A profile; with ``blocks`` that of a GPU where so many blocks stay at a time, so that small fields loop."""
    profile = load_profile(name)
    return profile if blocks is None else dataclasses.replace(profile, sms=1, max_blocks_sm=blocks)


def stencil(weights: npt.ArrayLike, boundary: BoundarySpec = periodic, dtype: str = "f64") -> Stencil:
    """A stencil whose absolute weights sum to 1, so that values stay of the size of the input's."""
    values = np.asarray(weights, dtype=np.float64)
    return Stencil.from_weights(values / np.abs(values).sum(), boundary=boundary, dtype=dtype)


def schedule(line: str | StencilSchedule) -> StencilSchedule:
    """The schedule of a line."""
    return Schedule.parse(line) if isinstance(line, str) else line


def lowered(
    s: Stencil,
    shape: tuple[int, ...],
    line: str | StencilSchedule,
    *,
    profile: DeviceProfile | None = None,
    pitch: tuple[int, int] | None = None,
) -> Program:
    """One pass of the schedule's ``steps`` at all levels."""
    value = schedule(line)
    return lower(StencilProblem(s, shape), value, profile or device(), value.steps, pitch)


def random_field(shape: tuple[int, ...], dtype: str = "f64", seed: int = 0) -> Field:
    """Values in -1..1."""
    values = np.random.default_rng(seed).uniform(-1.0, 1.0, shape)
    return values.astype(DTYPES[dtype].numpy())


def kernels(module: Module) -> dict[str, w.Func]:
    """The warp functions of a module, by symbol."""
    return {f.symbol: f for f in module.funcs if isinstance(f, w.Func)}


@dataclass(frozen=True)
class Result:
    """What came out of all launches of a pass: the field, and the report of each launch."""

    out: Field
    reports: tuple[tuple[str, Report], ...]

    @property
    def report(self) -> Report:
        """All launches' reports added up."""
        return reduce(lambda a, b: a + b, (r for _, r in self.reports))

    @property
    def errors(self) -> list[str]:
        """Every error, with its kernel."""
        return [f"{symbol}: {e}" for symbol, r in self.reports for e in r.errors]


class _Placed:
    """A field in memory of its own pitch, with NaN in all cells that are not the field's."""

    def __init__(self, shape: tuple[int, ...], pitch: int, dtype: npt.DTypeLike, values: Field | None) -> None:
        self.memory = np.full(math.prod(shape[:-1]) * pitch + 2 * GUARD, np.nan, dtype)
        self.flat = self.memory[GUARD:-GUARD]
        self.field = self.flat.reshape(*shape[:-1], pitch)[..., : shape[-1]]
        if values is not None:
            self.field[...] = values

    def outside_is_poison(self) -> bool:
        """Whether every cell around the field still holds NaN."""
        rest = self.memory.copy()
        inside = rest[GUARD:-GUARD].reshape(*self.field.shape[:-1], -1)
        inside[..., : self.field.shape[-1]] = np.nan
        return bool(np.isnan(rest).all())


def emulate(
    program: Program | Module,
    u: Field,
    *,
    seed: int = 0,
    pitch: tuple[int, int] | None = None,
    checks: Iterable[str] = emulator.ALL,
    first: bool = False,
) -> Result:
    """Runs all launches of a pass on ``u``; a cell outside the output that changed is an AssertionError.

    ``first``: it ends at the first error.
    """
    module = program if isinstance(program, Module) else program.warp
    pitches = pitch or (u.shape[-1], u.shape[-1])
    source, target = _Placed(u.shape, pitches[0], u.dtype, u), _Placed(u.shape, pitches[1], u.dtype, None)
    given, space, reports = source.memory.copy(), dict[str, Field](), list[tuple[str, Report]]()
    for launch in module.launches:
        func, args, uninit = kernels(module)[launch.symbol], dict[str, Any](), list[str]()
        for param, role in zip(func.params, launch.args, strict=True):
            assert isinstance(param, Buffer)
            if role == "in":
                args[param.name] = source.flat
            elif role == "out":
                args[param.name] = target.flat
                uninit.append(param.name)
            elif role.startswith("ws."):
                if role not in space:  # its first launch: nobody has written it; later ones read NaN where none did
                    space[role] = np.full(param.size, np.nan, param.dtype.numpy())
                    uninit.append(param.name)
                args[param.name] = space[role]
            else:
                args[param.name] = np.ascontiguousarray(module.constants[role]).reshape(-1).copy()
        report = emulator.run(func, args, seed=seed, uninit=uninit, checks=checks, first=first)
        reports.append((func.symbol, report))
        if first and not report.ok:
            break
    assert np.array_equal(source.memory, given, equal_nan=True), "a pass wrote its input"
    assert target.outside_is_poison(), "a pass wrote cells around its output"
    return Result(target.field.copy(), tuple(reports))


def expected(s: Stencil, u: Field, steps: int) -> Field:
    """The reference's field after ``steps`` steps of one pass: of 16 bits summed in f32 and rounded once."""
    wide = u.astype(sum_type(DTYPES[s.dtype]).numpy())
    return reference.run(wide, s.weights, s.sides, steps).astype(u.dtype)


def error(got: Field, want: Field) -> float:
    """max|a-b| / max|b|; infinite where a cell is not a number."""
    if not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - want).max()) / max(float(np.abs(want).max()), 1e-300)


def faults(program: Program, s: Stencil, u: Field, result: Result) -> list[str]:
    """What is wrong with a result: findings of the emulator, and a field that is not the reference's."""
    off = error(result.out, expected(s, u, program.steps))
    wrong = [] if off <= TOLERANCE[s.dtype] else [f"the field is off by {off:.3g}"]
    return result.errors + wrong


def with_kernel(module: Module, func: w.Func) -> Module:
    """The module with the function of the same symbol replaced."""
    funcs = tuple(func if isinstance(f, w.Func) and f.symbol == func.symbol else f for f in module.funcs)
    return dataclasses.replace(module, funcs=funcs)


def rewritten(module: Module, rule: Callable[[Any], Any]) -> Module:
    """The module with ``rule`` applied to every op of every kernel's body (see ``ir.node.rewrite``)."""
    every: tuple[Any, ...] = module.funcs
    funcs = tuple(dataclasses.replace(f, body=rewrite(f.body, rule)) for f in every)
    return dataclasses.replace(module, funcs=funcs)


def nodes(func: Any) -> Iterator[Any]:
    """Every op of a function and every expression node below, for budgets."""
    from sparsegen.ir.expr import Bin, Expr, Select
    from sparsegen.ir.node import operands, walk

    def below(e: Expr) -> Iterator[Expr]:
        yield e
        for part in (e.a, e.b) if isinstance(e, Bin) else (e.c, e.a, e.b) if isinstance(e, Select) else ():
            yield from below(part)

    for op in walk(func):
        assert fields(op) is not None
        yield op
        for e in operands(op):
            yield from below(e)
