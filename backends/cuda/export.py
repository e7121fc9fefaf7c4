"""A module as one CUDA file that needs nothing of sparsegen: kernels, tables, a launcher in C, and a small ``main``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any, Final

import numpy as np

from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Value
from sparsegen.ir.module import Module
from sparsegen.ir.types import Buffer, DType

from .expr_c import float_literal, literal, register_type
from .frame import fill, functions, needed_arch, param_type, translation_unit
from .names import Names

_ALIGN: Final = 256  # of what lies in the workspace, in bytes: as cudaMalloc aligns
_MANY: Final = 2**31 - 1


@dataclass
class _Plan:
    """What the launcher needs: tables by role, scratch arrays (role to size in bytes), and the launches as C text."""

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    scratch: dict[str, int] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    ends: dict[str, Buffer] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)


def export_text(module: Module, *, title: str | None = None, notes: Iterable[str] = (), arch: str | None = None) -> str:
    """CUDA C++ with ``int NAME_run(in, out, workspace, passes, stream)``; it returns a ``cudaError_t`` (0 is success).

    ``in`` is never written; with two passes or more the levels between lie in ``out`` and in the workspace, of
    ``NAME_workspace_bytes(passes)`` bytes.  Other roles of the launches than ``in``, ``out`` and the module's constants
    are scratch arrays in the workspace, which hold anything at first.
    """
    plan = _plan(module)
    missing = {"in", "out"} - plan.ends.keys()
    if missing:
        raise IRError(
            f"module {module.name!r} has no launch with the role {min(missing)!r}", hint="export needs in and out"
        )
    first, last = plan.ends["in"], plan.ends["out"]
    scratch, at = [], 0
    for role, nbytes in plan.scratch.items():
        scratch.append({"name": plan.names.declare(f"@s_{role}"), "offset": at})
        at += -(-nbytes // _ALIGN) * _ALIGN
    alternates = first.dtype == last.dtype and first.size == last.size
    return _filled(
        "export.cu.j2", module, title, notes, arch, first=first, last=last,
        to_double="(double)(float)" if last.dtype.bits == 16 else "(double)",
        max_passes=_MANY if alternates else 1, scratch=scratch, spare_offset=at,
        tables=list(plan.tables.values()), calls=plan.calls,
    )  # fmt: skip


def step_text(module: Module, *, title: str | None = None, notes: Iterable[str] = (), arch: str | None = None) -> str:
    """CUDA C++ with ``int NAME_step(arrays..., stream)``: one launch, the parameters of its kernel by name.

    For a module of one launch without constants; it returns a ``cudaError_t`` (0 is success).
    """
    (run,) = module.launches
    (func,) = (f for f in functions(module) if f.symbol == run.symbol)
    if any(not isinstance(p, Buffer) or p.space != "global" for p in func.params):
        raise IRError(f"{run.symbol!r} takes more than arrays", hint="a step to export has no tables")
    names = Names(frozenset({"stream", "room"}))
    arrays = [
        {
            "param": p,
            "name": names.declare(f"@{p.name}"),
            "const": "" if role.startswith(("out", "workspace")) else "const ",
        }
        for p, role in zip(func.params, run.args, strict=True)
    ]
    return _filled("step.cu.j2", module, title, notes, arch, func=func, arrays=arrays)


def _filled(
    template: str, module: Module, title: str | None, notes: Iterable[str], arch: str | None, **facts: Any
) -> str:
    """The kernels of a module, and behind them its launcher."""
    unit = translation_unit(module, title=title or f"{module.name}: exported by sparsegen", notes=notes, arch=arch)
    own = (arch or needed_arch(functions(module))).removeprefix("sm_")
    return fill(template, unit=unit, name=_identifier(module.name), arch=own, **facts)


def _identifier(name: str) -> str:
    out = re.sub(r"\W", "_", name, flags=re.ASCII)
    return out if out and not out[0].isdigit() and not out.startswith("_") else f"k{out}"


def _plan(module: Module) -> _Plan:
    funcs = {f.symbol: f for f in functions(module)}
    plan = _Plan(names=Names(frozenset(funcs)))
    for run in module.launches:
        f = funcs.get(run.symbol)
        if f is None or len(run.args) != len(f.params):
            raise IRError(
                f"launch of {run.symbol!r} with {len(run.args)} arguments fits no function of {module.name!r}"
            )
        args = [_argument(plan, module, p, role) for p, role in zip(f.params, run.args, strict=True)]
        plan.calls.append({"func": f, "args": ", ".join(args)})
    return plan


def _argument(plan: _Plan, module: Module, p: Buffer | Value, role: str) -> str:
    """The C text of one argument; notes in the plan what it stands for."""
    if role in module.constants:
        data = np.asarray(module.constants[role])
        if isinstance(p, Value):
            return _number(data.reshape(-1)[0], p.dtype)
        return _table(plan, p, role, data)
    if isinstance(p, Value) or p.space != "global":
        raise IRError(f"parameter {p.name!r} is bound to {role!r}, which is no constant of module {module.name!r}")
    if role in ("in", "out"):
        seen = plan.ends.setdefault(role, p)
        if (seen.dtype, seen.size) != (p.dtype, p.size):
            raise IRError(
                f"the role {role!r} is {seen.size} x {seen.dtype} in one launch, {p.size} x {p.dtype} in another"
            )
        return {"in": "from", "out": "to"}[role]
    plan.scratch[role] = max(p.nbytes, plan.scratch.get(role, 0))
    return f"reinterpret_cast<{p.dtype.c}*>({plan.names.declare(f'@s_{role}')})"


def _table(plan: _Plan, p: Buffer, role: str, data: np.ndarray[Any, Any]) -> str:
    if data.size != p.size or data.dtype != p.dtype.numpy():
        raise IRError(f"constant {role!r} is {data.size} x {data.dtype}, parameter {p.name!r} is {p.size} x {p.dtype}")
    name, flat = plan.names.declare(f"@c_{role}"), data.reshape(-1)
    if p.space == "param":
        size, declared = "", f"static const {param_type(p, p.dtype.c)}"
        rows = ["{", *_rows(_number(x, p.dtype) for x in flat), "}"]
    else:  # 16-bit floats have no constant initialiser on the device: their bits do
        bits = p.dtype.kind == "float" and p.dtype.bits == 16
        declared = f"static __device__ __align__(16) const {'unsigned short' if bits else p.dtype.c}"
        size = f"[{p.size}]"
        rows = _rows((str(int(x)) for x in flat.view(np.uint16)) if bits else (_number(x, p.dtype) for x in flat))
    in_memory = p.space != "param"  # of the device, at an address that must be asked for
    made = {"declared": declared, "name": name, "size": size, "rows": rows, "symbol": in_memory}
    plan.tables.setdefault(name, made)
    return f"static_cast<{p.dtype.c}*>(p_{name})" if in_memory else name


def _number(x: Any, dtype: DType) -> str:
    if dtype.kind != "float":
        return literal(int(x), register_type(dtype)).text
    value = float(x)
    if np.isfinite(value):
        return float_literal(value, dtype)
    return f"({dtype.c})NAN" if np.isnan(value) else f"({dtype.c}){'-' if value < 0 else ''}INFINITY"


def _rows(numbers: Iterable[str]) -> list[str]:
    """The numbers with commas, in lines of text."""
    return wrap(" ".join(f"{n}," for n in numbers), 110, break_long_words=False, break_on_hyphens=False)
