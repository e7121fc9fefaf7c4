"""Random stencils, updates and products under random schedules: on the emulator, and as they are printed."""

from __future__ import annotations

from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np

import sparsegen as sg
from sparsegen.run import emulator
from tests import nm_kit
from tests.csr_kit import ragged
from tests.freeze.problems import BOUNDARIES, UPDATE_FORMS
from tests.fuzz import meaning
from tests.fuzz.finding import Draw, Finding, refused, works
from tests.printed import program

#: What a result may differ by, of the largest sum of absolute terms; more steps, more roundings.
ROUNDING = {"f64": 2.0**-48, "f32": 2.0**-19, "f16": 2.0**-8, "bf16": 2.0**-5}
TYPES: dict[str, Any] = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
SIDES = ["periodic", "frozen", "neumann", "dirichlet"]
#: One trial in so many runs the printed text as well, which takes a second to compile.
PRINTED = 8
#: The share of them that are checked and counted.
EXAMINED = 0.1


def _both(kernel: Any, given: dict[str, Any], draw: Draw) -> list[tuple[str, Any]]:
    """The results of a call, by who worked them out."""
    made = [("the emulator", kernel(**given))]
    if draw.random() < 1 / PRINTED and program.compiler():
        with mock.patch.object(emulator, "run_plan", lambda plan, given, new, *_: program.run_plan(plan, given, new)):
            made.append(("the printed text", kernel(**given)))
    return made


def _examined(kernel: Any, draw: Draw, how: str) -> None:
    """What ``check`` finds, and whether ``counts`` counts."""
    if draw.random() < EXAMINED:
        if not (report := works(kernel.check, how)).ok:
            raise Finding(f"check: {report}", how)
        works(kernel.counts, how)


def _compare(who: str, got: Any, wanted: Any, slack: float, how: str) -> None:
    off = np.abs(np.asarray(got, np.float64) - wanted)
    if not (off <= slack).all():
        raise Finding(f"{who} is off by {np.nanmax(off)}, allowed {slack}", how)


def stencils(draw: Draw) -> None:
    """A stencil, on a few schedules of those that are listed for it."""
    axes, dtype = draw.choice((1, 2, 2, 3)), draw.choice(("f64", "f64", "f32", "f16", "bf16"))
    rng = np.random.default_rng(draw.randrange(1 << 30))
    edges = tuple(2 * draw.choice((0, 1, 1, 2, 3)) + 1 for _ in range(axes))
    w = rng.uniform(-1, 1, edges) * (rng.random(edges) < draw.choice((0.3, 1.0)))
    if not np.any(w):
        w.flat[0] = 1.0
    w /= np.abs(w).sum()
    sides: Any = {axis: tuple(_side(draw) for _ in range(2)) for axis in range(axes)}
    if draw.random() < 0.5:
        sides = _side(draw)
    shape = tuple(draw.choice((edges[i], draw.randint(edges[i], {1: 2000, 2: 90, 3: 24}[axes]))) for i in range(axes))
    most = draw.randint(1, 7)
    s = refused(lambda: sg.Stencil.from_weights(w, sides, dtype=dtype), f"{w!r} {sides}")
    costs = refused(lambda: sg.schedules(s, shape, most, device="h200"), f"{w!r} {sides} {shape}") if s else None
    if not costs:
        return
    u = rng.uniform(-1, 1, shape).astype(TYPES[dtype])
    for schedule in (cost.schedule for cost in draw.sample(costs, min(3, len(costs)))):
        _stencil(s, u, schedule, draw)


def _stencil(s: sg.Stencil, u: Any, schedule: Any, draw: Draw) -> None:
    """A listed schedule runs whole passes; where steps are left over, it may say that it has no pass for them."""
    steps = schedule.steps * draw.choice((1, 2)) + draw.choice((0, 0, 1))
    how = f"weights={s.weights.tolist()} {s.sides} {s.dtype} {u.shape} steps={steps} schedule={schedule}"
    compiled = refused if steps % schedule.steps else works
    kernel = compiled(lambda: sg.compile(s, u.shape, steps, "h200", "emulator", schedule), how)
    if kernel is None:
        return
    wanted = meaning.stencil(u, s.weights, s.sides, steps)
    for who, got in works(lambda: _both(kernel, {"u": u}, draw), how):
        _compare(who, got, wanted, ROUNDING[s.dtype] * (1 + steps) * 2, how)
    _examined(kernel, draw, how)


def _side(draw: Draw) -> Any:
    return BOUNDARIES[draw.choice(SIDES)]


def updates(draw: Draw) -> None:
    """An update of a few kinds, against the reference's arithmetic, in which borders and formulas are looked up."""
    name, dtype = draw.choice(list(UPDATE_FORMS)), draw.choice(("f64", "f32"))
    u = UPDATE_FORMS[name](dtype=dtype, boundary=_side(draw))
    shape = tuple(draw.randint(3, 40) for _ in range(u.ndim))
    steps = draw.randint(1, 4)
    costs = sg.schedules(u, shape, steps, device="h200")
    schedule = draw.choice(list(costs)).schedule
    how = f"{name} {dtype} {shape} steps={steps} schedule={schedule}"
    kernel = works(lambda: sg.compile(u, shape, steps, "h200", "emulator", schedule), how)
    given = kernel.random(draw.randrange(1000))
    wanted = _flat(sg.compile(u, shape, steps, "h200", "reference")(**given))
    slack = ROUNDING[dtype] * 64 * steps * max(1.0, np.abs(wanted).max())
    for who, got in works(lambda: _both(kernel, given, draw), how):
        _compare(who, _flat(got), wanted, slack, how)
    _examined(kernel, draw, how)


def _flat(result: Any) -> Any:
    if isinstance(result, tuple):
        return np.concatenate([_flat(part) for part in result])
    return np.asarray(result, np.float64).reshape(-1)


def products(draw: Draw) -> None:
    """A product with a bitmap, csr or N:M matrix of any shape, any epilogue."""
    m, k, n = draw.randint(1, 200), draw.randint(1, 200), draw.choice((1, 2, 7, 8, 16, 33, 64))
    rng = np.random.default_rng(draw.randrange(1 << 30))
    kind = draw.choice(("bitmap", "csr", "nm"))
    dtype = draw.choice(("f16", "bf16") if kind == "bitmap" else ("f16", "bf16", "f32"))
    options: dict[str, Any] = {}
    if kind == "nm":
        r, c = draw.choice(((1, 1), (1, 1), (8, 1), (4, 4), (3, 2), (64, 1), (128, 2)))
        width = c * draw.randint(2, 64 // c)
        of = c * draw.randint(1, width // c - 1)
        options = {"n": of, "m": width, "vector": (r, c)}
        dense = nm_kit.pruned(m, k, of, width, (r, c), dtype, draw.choice((0.3, 1.0)), draw.randrange(1 << 30))
    elif kind == "csr" and draw.random() < 0.5:
        dense = ragged(m, k, draw.choice((1.0, 5.0, 20.0)), draw.randrange(1000), draw.choice((0, 1))).toarray()
    else:
        dense = rng.standard_normal((m, k)) * (rng.random((m, k)) < draw.choice((0.0, 0.1, 0.4, 1.0)))
    dense = dense.astype(TYPES[dtype])
    epilogue: dict[str, Any] = {name: draw.random() < 0.3 for name in ("bias", "scale", "residual")}
    epilogue["activation"] = draw.choice((None, None, "relu", "gelu", "silu"))
    how = f"{kind} {options} {dtype} {m}x{k}x{n} {epilogue}"
    made = refused(lambda: sg.spmm(sg.sparse(dense, format=kind, **options), n=n, **epilogue), how)
    if made is None:
        return
    costs = [c for c in sg.schedules(made, device="h200") if c.schedule.family != "dense"]
    schedule = draw.choice(costs).schedule
    how += f" schedule={schedule}"
    kernel = works(lambda: sg.compile(made, device="h200", backend="emulator", schedule=schedule), how)
    given = kernel.random(draw.randrange(1000))
    wanted = meaning.product(dense, given, epilogue["activation"])
    terms = np.abs(dense).astype(float) @ np.abs(given["x"]).astype(float)
    slack = ROUNDING[dtype] * max(1.0, float(terms.max())) * (1 + (2 if epilogue["scale"] else 0))
    for who, got in works(lambda: _both(kernel, given, draw), how):
        _compare(who, got, wanted, slack, how)
    _examined(kernel, draw, how)
