"""What the tests of general updates share: named cases, random ones, and a pass of any on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import sparsegen as sg
from sparsegen.backends import emulator
from sparsegen.backends.reference.update import run
from sparsegen.cost.devices import load_profile
from sparsegen.dsl.update import Update
from sparsegen.ir.module import Module
from sparsegen.ir.op_update import Update as Op
from sparsegen.ir.op_update import parameters
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from sparsegen.ir.types import DTYPES, Buffer
from sparsegen.ir.warp import Func
from sparsegen.pipelines import Program, lower
from sparsegen.plan import SCRATCH, constant
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import UpdateSchedule
from tests.schedules import error as error

Array = npt.NDArray[Any]
H200 = load_profile("h200")
#: Largest relative error of a step: both compute in the type, but the emulator's program fuses products into sums.
#: What is rounded to 16 bits may be one unit in the last place apart.
TOLERANCE = {"f64": 1e-13, "f32": 1e-5, "f16": 2.0**-10, "bf16": 2.0**-7}
Edge = dict[str, Any]


def made(function: Callable[..., Any], **options: Any) -> Update:
    """The update of a function; a linear stencil is an AssertionError."""
    update = sg.stencil(**options)(function)
    assert isinstance(update, Update)
    return update


# ------------------------------------------------------------------------------------------------ named cases
def wave(**options: Any) -> Update:
    """The wave equation with a speed that varies."""

    def wave(u: sg.Field(levels=2), c: sg.Coef) -> Any:  # type: ignore[valid-type]
        return (
            2 * u[0, 0]
            - u.prev[0, 0]
            + c[0, 0]
            * (  # type: ignore[index]
                u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0]  # type: ignore[index]
            )
        )

    return made(wave, **options)


def heat(**options: Any) -> Update:
    """Heat through a material whose conductivity varies: fluxes through the faces of a cell, in conservative form."""

    def heat(u: Any, k: sg.Coef) -> Any:
        def flux(dz: int, dy: int, dx: int) -> Any:
            return (k[0, 0, 0] + k[dz, dy, dx]) / 2 * (u[dz, dy, dx] - u[0, 0, 0])  # type: ignore[index]

        faces = [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
        return u[0, 0, 0] + 0.15 * sum(flux(*f) + flux(*(-d for d in f)) for f in faces)

    return made(heat, **options)


def gray_scott(**options: Any) -> Update:
    """Two substances that react and spread."""

    def gray_scott(u: Any, v: Any) -> Any:
        def spread(w: Any) -> Any:
            return w[-1, 0] + w[1, 0] + w[0, -1] + w[0, 1] - 4 * w[0, 0]

        reaction = u[0, 0] * v[0, 0] ** 2
        return (
            u[0, 0] + 0.16 * spread(u) - reaction + 0.06 * (1 - u[0, 0]),
            v[0, 0] + 0.08 * spread(v) + reaction - 0.122 * v[0, 0],
        )

    return made(gray_scott, **options)


def life(**options: Any) -> Update:
    """Conway's Game of Life on cells of 0 and 1."""

    def life(u: Any) -> Any:
        around = sum(u[dy, dx] for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0))
        return sg.where((around == 3) | ((around == 2) & (u[0, 0] == 1)), 1, 0)

    return made(life, **options)


def burgers(**options: Any) -> Update:
    """Burgers' equation upwind: a choice by the sign of the speed, on one axis."""

    def burgers(u: Any) -> Any:
        slope = sg.where(u[0] > 0, u[0] - u[-1], u[1] - u[0])
        return u[0] - 0.2 * u[0] * slope + 0.1 * (u[-1] - 2 * u[0] + u[1])

    return made(burgers, **options)


NAMED: dict[str, tuple[Callable[..., Update], tuple[int, ...]]] = {
    "wave": (wave, (37, 70)), "heat": (heat, (7, 10, 37)), "gray_scott": (gray_scott, (19, 65)),
    "life": (life, (24, 40)), "burgers": (burgers, (700,)),
}  # fmt: skip
"""Name: the case, and a shape that no block divides."""


def arrays(update: Update, shape: Sequence[int], seed: int = 0) -> dict[str, Any]:
    """Keyword arguments of a call: random fields (levels in a tuple) between 0 and 1, cells of 0 and 1 for ``life``."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[update.dtype].numpy()

    def one() -> Array:
        a = rng.random(shape)
        return (np.rint(a) if update.name == "life" else a).astype(dtype)

    return {p.name: one() if p.levels == 1 else tuple(one() for _ in range(p.levels)) for p in update.parameters}


# ------------------------------------------------------------------------------------------------ random cases
#: What a random formula is made of.
CHOICES: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b, lambda a, b: a - 0.5 * b, lambda a, b: b - a, lambda a, b: a * b, lambda a, b: a / (1 + b * b),
    lambda a, b: sg.min(a, b, 0.75), lambda a, b: sg.max(a, b), lambda a, b: sg.sqrt(abs(a)) + b,
    lambda a, b: sg.where((a > b) & ~(b >= 0.9), a, b), lambda a, b: 0.25 * a**3 - b / 3,
    lambda a, b: sg.where((a != 0.5) | (b < 0.1), -a, b + 0.125), lambda a, b: sg.sin(a) + 0.5 * sg.cos(b),
    lambda a, b: a * sg.exp(-b * b), lambda a, b: sg.log(1 + b * b) - a, lambda a, b: sg.clip(a, -0.5, b),
    lambda a, b: abs(a) ** 1.5 + sg.pow(1 + a * a, sg.tanh(b)),
]  # fmt: skip


def random_boundary(rng: np.random.Generator, ndim: int) -> Any:
    """Any boundary of ``ndim`` axes."""
    ends = [sg.frozen, sg.neumann, sg.dirichlet(0.5), sg.dirichlet(-1.25)]
    if rng.random() < 0.5:
        return [*ends, sg.periodic][rng.integers(5)]
    return {
        axis: sg.periodic if rng.random() < 0.3 else (ends[rng.integers(4)], ends[rng.integers(4)])
        for axis in range(ndim)
    }


def random_update(seed: int) -> Update:
    """A random formula of one to three parameters on one to three axes; bounded, so that no step runs away."""
    rng = np.random.default_rng(seed)
    ndim, dtype = int(rng.integers(1, 4)), ("f64", "f64", "f32")[rng.integers(3)]
    levels = ((1,), (2,), (3,), (1, 1), (2, 1))[rng.integers(5)]
    names = ("u", "v")[: len(levels)] + ("c",) * int(rng.integers(2))
    size = int(rng.integers(1, 15))

    def formula(*params: Any) -> Any:
        def read() -> Any:
            which = int(rng.integers(len(params)))
            p = params[which]
            for _ in range(rng.integers(levels[which]) if which < len(levels) else 0):
                p = p.prev
            reach = 2 if ndim < 3 else 1
            at = rng.integers(-reach, reach + 1, ndim) * (rng.random(ndim) < 0.6)
            return p[tuple(int(d) for d in at)]

        def one() -> Any:
            values = [p[(0,) * ndim] for p in params]  # each is read at least once
            for _ in range(size):
                a, b = read(), values[rng.integers(len(values))]
                values.append(CHOICES[rng.integers(len(CHOICES))](a, b))
            total = sum(values[1:], values[0]) * (1 / len(values))
            return total / (1 + total * total)

        out = tuple(one() for _ in levels)
        return out if len(out) > 1 else out[0]

    space: dict[str, Any] = {"formula": formula}  # a function with as many parameters as the case has
    exec(f"def f({', '.join(names)}): return formula({', '.join(names)})", space)
    f: Callable[..., Any] = space["f"]
    f.__annotations__ = {n: sg.Field(levels=levels[i]) if i < len(levels) else sg.Coef() for i, n in enumerate(names)}
    boundary = random_boundary(rng, ndim)
    if len(levels) > 1 and rng.random() < 0.5:
        boundary = {n: random_boundary(rng, ndim) for n in names[: len(levels)]}
    return made(f, dtype=dtype, boundary=boundary, name="random")


# ------------------------------------------------------------------------------------------------ a pass
def op_of(update: Update, shape: tuple[int, ...]) -> Op:
    """The update at the op level."""
    (op,) = UpdateProblem(update, shape).describe().funcs
    assert isinstance(op, Op)
    return op


def reference_pass(update: Update, given: Mapping[str, Any], steps: int) -> dict[tuple[str, int], Array]:
    """The levels of each field after some steps, by the reference, as (name, level)."""
    fields = {name: given[name] if n > 1 else (given[name],) for name, n in update.fields}
    shape = next(iter(fields.values()))[0].shape
    new = run(op_of(update, shape), fields, {name: given[name] for name in update.coefs}, steps)
    return {(name, level): a for name, levels in new.items() for level, a in enumerate(levels)}


def emulated_pass(
    update: Update,
    program: Program | Module,
    given: Mapping[str, Any],
    pitch: Sequence[int] | None = None,
    seed: int = 0,
    kept: dict[str, Array] | None = None,
) -> tuple[dict[tuple[str, int], Array], list[str]]:
    """The levels that a pass makes, as (name, level), by the emulator, and its findings.

    ``pitch``: of each parameter, then of every level of each field; what lies between rows is NaN and must stay so.
    ``kept``: workspaces by role, as an earlier pass has left them.
    """
    module = program if isinstance(program, Module) else program.warp
    (launch,) = module.launches
    func = next(f for f in module.funcs if isinstance(f, Func) and f.symbol == launch.symbol)
    levels, reads = dict(update.fields), parameters(update.fields, update.coefs)
    shape = np.shape(given[reads[0][0]][0] if levels[reads[0][0]] > 1 else given[reads[0][0]])
    rows = int(np.prod(shape[:-1], dtype=int))
    arrays = [("in", *key) for key in reads] + [("out", *key) for key in parameters(update.fields, ())]
    wide = dict(zip(arrays, pitch or (shape[-1],) * len(arrays), strict=True))
    memory: dict[str, Array] = {}
    made: dict[tuple[str, int], str] = {}
    others: dict[str, Array] = {}
    space = {} if kept is None else kept
    for p, role in zip(func.params, launch.args, strict=True):
        assert isinstance(p, Buffer)
        if role in module.constants:
            others[p.name] = constant(module, role, p)
            continue
        if role.startswith(SCRATCH):
            others[p.name] = space.setdefault(role, np.zeros(p.size, p.dtype.numpy()))
            continue
        kind, name, *rest = role.split(".")
        level = int(rest[0]) if rest else 0
        memory[p.name] = np.full((rows, wide[kind, name, level]), np.nan, p.dtype.numpy())
        if kind == "in":
            source = given[name][level] if levels.get(name, 1) > 1 else given[name]
            memory[p.name][:, : shape[-1]] = source.reshape(rows, shape[-1])
        else:
            made[name, level] = p.name
    before, new = {n: a.copy() for n, a in memory.items()}, {*made.values()}
    given_flat = {n: a.reshape(-1) for n, a in memory.items()}
    report = emulator.run(func, {**given_flat, **others}, seed=seed, uninit=[*new])
    for name, a in memory.items():
        same, was = (b[:, shape[-1] :] if name in new else b for b in (a, before[name]))
        assert np.array_equal(same, was, equal_nan=True), f"@{name} was written where it must not be"
    wrong = [str(e) for e in report.errors] + [str(n) for n in report.notes]
    return {key: memory[name][:, : shape[-1]].reshape(shape) for key, name in made.items()}, wrong


# ------------------------------------------------------------------------------------------------ what each must do
def agree(update: Update, shape: tuple[int, ...], s: UpdateSchedule, pitch: Any = None, seed: int = 0) -> None:
    """A pass is what the reference makes of its steps, and the emulator has nothing to say."""
    found = arrays(update, shape, seed)
    program = lower(UpdateProblem(update, shape), s, H200, s.levels, pitch)
    got, wrong = emulated_pass(update, program, found, pitch, seed)
    assert not wrong
    want = reference_pass(update, found, s.levels)
    assert len(got) == sum(min(n, s.levels) for _, n in update.fields)
    for key, a in got.items():
        assert error(a, want[key]) <= s.levels * TOLERANCE[update.dtype], key


def wider(update: Update, shape: tuple[int, ...], extra: Sequence[int]) -> tuple[int, ...]:
    """Elements from row to row of each array of a pass, so many more than a row has."""
    count = 2 * sum(n for _, n in update.fields) + len(update.coefs)
    return tuple(shape[-1] + e for e in extra[:count])


def reads_back(update: Update, shape: tuple[int, ...], s: UpdateSchedule) -> None:
    """Every level of the program is what its text says."""
    program = lower(UpdateProblem(update, shape), s, H200, s.levels)
    for module in (program.op, program.tile, program.warp):
        assert parse_module(print_module(module)) == module
