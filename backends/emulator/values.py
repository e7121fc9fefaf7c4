"""How values look while a program runs, and expressions as compiled Python.

A value of a group of ``n`` warps broadcasts to ``[n, 32]``: a Python int or NumPy scalar (the same everywhere),
``[n, 1]`` (one a warp), ``[1, 32]`` (one a lane) or ``[n, 32]``.  Integers of every type up to 64 bits signed are held
exactly as int64 (u64 as uint64), predicates as bool, floats in their own NumPy type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sparsegen.ir.expr import LOGIC, Bin, Const, Expr, Select, Value
from sparsegen.ir.types import DType

Env = list[Any]
Fn = Callable[[Env], Any]
LANES = np.arange(32, dtype=np.int64).reshape(1, 32)


# ------------------------------------------------------------------------------------------------ expressions
def _min(a: Any, b: Any) -> Any:
    return (a if a < b else b) if type(a) is int and type(b) is int else np.minimum(a, b)


def _max(a: Any, b: Any) -> Any:
    return (a if a > b else b) if type(a) is int and type(b) is int else np.maximum(a, b)


def choose(c: Any, a: Any, b: Any) -> Any:
    return np.where(c, a, b) if isinstance(c, np.ndarray) else (a if c else b)


def _int(a: Any) -> Any:
    """A uint64 value in an index expression (which is exact as int64 by its declared range)."""
    return a.astype(np.int64) if isinstance(a, np.ndarray) else int(a)


_GLOBALS: dict[str, Any] = {"MIN": _min, "MAX": _max, "SEL": choose, "INT": _int}


def _source(e: Expr, slots: Mapping[str, int]) -> tuple[str, bool]:
    """Python source of an expression over ``e`` (the environment), and whether it is a predicate."""
    if isinstance(e, Const):
        return (f"({e.value})" if e.value < 0 else str(e.value)), False
    if isinstance(e, Value):
        src = f"e[{slots[e.name]}]"
        return (f"INT({src})" if e.dtype.name == "u64" else src), e.dtype.kind == "pred"
    if isinstance(e, Select):
        a, b = _source(e.a, slots), _source(e.b, slots)
        if a[1] and b[1]:
            return f"SEL({_pred(e.c, slots)},{a[0]},{b[0]})", True
        return f"SEL({_pred(e.c, slots)},{_number(e.a, slots)},{_number(e.b, slots)})", False
    assert isinstance(e, Bin)
    if e.op in ("and", "or"):
        return f"({_pred(e.a, slots)} {'&' if e.op == 'and' else '|'} {_pred(e.b, slots)})", True
    x, y = _number(e.a, slots), _number(e.b, slots)
    if e.op in ("min", "max"):
        return f"{e.op.upper()}({x},{y})", False
    if e.op in ("//", "%") and isinstance(e.b, Const):
        v = e.b.value
        if v & (v - 1) == 0:
            return (f"({x}>>{v.bit_length() - 1})" if e.op == "//" else f"({x}&{v - 1})"), False
    return f"({x}{e.op}{y})", e.op in LOGIC


def _number(e: Expr, slots: Mapping[str, int]) -> str:
    src, is_pred = _source(e, slots)
    return f"({src}*1)" if is_pred else src


def _pred(e: Expr, slots: Mapping[str, int]) -> str:
    if isinstance(e, Const):
        return str(bool(e.value))
    src, is_pred = _source(e, slots)
    return src if is_pred else f"({src}!=0)"


def _lambda(src: str) -> Fn:
    fn: Fn = eval(f"lambda e: {src}", _GLOBALS)
    return fn


def number(e: Expr, slots: Mapping[str, int]) -> Fn:
    """An integer expression as a function of the environment."""
    return _lambda(_number(e, slots))


def predicate(e: Expr, slots: Mapping[str, int]) -> Fn:
    """A predicate as a function of the environment (bool or array of bool)."""
    return _lambda(_pred(e, slots))


def operand(e: Expr, dtype: DType, slots: Mapping[str, int]) -> Fn:
    """An op's operand in the representation of ``dtype``: a value as it is, an expression computed."""
    if dtype.kind == "pred":
        return predicate(e, slots)
    if isinstance(e, Value):
        if e.dtype.kind == "pred":
            return number(e, slots)
        k = slots[e.name]
        return lambda env: env[k]
    if dtype.kind == "float":
        if isinstance(e, Const):
            c = dtype.numpy().type(e.value)
            return lambda env: c
        f, npt = number(e, slots), dtype.numpy()
        return lambda env: np.asarray(f(env)).astype(npt)
    fn = number(e, slots)
    if dtype.name == "u64":
        return lambda env: np.asarray(fn(env)).astype(np.uint64)
    return fn


# ------------------------------------------------------------------------------------------------ representations
def held(dtype: DType) -> Any:
    """The NumPy dtype in which values of a type are held in the environment."""
    if dtype.kind == "float":
        return dtype.numpy()
    if dtype.kind == "pred":
        return np.dtype(bool)
    return np.dtype(np.uint64 if dtype.name == "u64" else np.int64)


def load(x: Any, dtype: DType) -> Any:
    """A memory element (array or scalar) as a value."""
    if dtype.kind == "float":
        return x
    if isinstance(x, np.ndarray):
        return x.astype(held(dtype), copy=False)
    return np.uint64(x) if dtype.name == "u64" else int(x)


def wrap(x: Any, dtype: DType) -> Any:
    """An exact (or mod 2**64) integer brought into the type's range by dropping high bits."""
    if dtype.bits == 64:
        if dtype.name == "u64":
            return np.asarray(x).astype(np.uint64)
        return (
            x
            if isinstance(x, np.ndarray) or -(1 << 63) <= int(x) < 1 << 63
            else int(np.uint64(int(x) % 2**64).astype(np.int64))
        )
    mask = (1 << dtype.bits) - 1
    if dtype.kind == "uint":
        return x & mask
    half = 1 << (dtype.bits - 1)
    return ((x + half) & mask) - half


def bits(x: Any, dtype: DType) -> Any:
    """The bits of a value as an unsigned number (int64, for 64-bit types uint64)."""
    if dtype.kind == "pred":
        return np.asarray(x).astype(np.int64)
    raw = np.asarray(x).astype(dtype.numpy(), copy=False)
    u = np.ascontiguousarray(raw).view(f"u{dtype.nbytes}").reshape(raw.shape)
    return u if dtype.bits == 64 else u.astype(np.int64)


def from_bits(x: Any, dtype: DType) -> Any:
    """The value of a type that has these bits."""
    u = np.asarray(x)
    u = np.ascontiguousarray(u.astype(np.uint64) if dtype.bits == 64 else u.astype(f"u{dtype.nbytes}"))
    return load(u.view(dtype.numpy()).reshape(np.shape(x)), dtype)


def pick(positions: Any, shape: tuple[int, ...], *arrays: Any) -> list[Any]:
    """The elements at flat positions of arrays that broadcast to a shape."""
    return [
        (a if getattr(a, "shape", None) == shape else np.broadcast_to(a, shape)).reshape(-1)[positions] for a in arrays
    ]


def spread(n: int, sel: Any, x: Any, fill: Any, dtype: Any) -> Any:
    """``[n, 32]`` with ``x`` at the flat positions ``sel`` (None: everywhere), and ``fill`` at the others."""
    out = np.full((n, 32), fill, dtype=dtype) if fill else np.zeros((n, 32), dtype=dtype)
    if sel is None:
        out[:] = x
    else:
        out.reshape(-1)[sel] = x
    return out


def rows_of(v: Any, sel: Any) -> Any:
    """The rows ``sel`` of a value of more than one warp; values that are the same in every warp stay as they are."""
    return v[sel] if isinstance(v, np.ndarray) and v.ndim == 2 and v.shape[0] > 1 else v


def join(parts: list[Any], ns: list[int], order: Any) -> Any:
    """One value for several groups of warps, from a value of each."""
    first = parts[0]
    if all(p is first for p in parts) or (type(first) is int and all(type(p) is int and p == first for p in parts)):
        if not isinstance(first, np.ndarray) or first.ndim != 2 or first.shape[0] == 1:
            return first
    arrays = [np.asarray(p) for p in parts]
    width = max(a.shape[-1] if a.ndim == 2 else 1 for a in arrays)
    return np.concatenate([np.broadcast_to(a, (n, width)) for a, n in zip(arrays, ns, strict=True)])[order]
