"""Small programs for the emulator's tests: a function that builds a body becomes a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from sparsegen.backends.emulator import Report, run
from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Value
from sparsegen.ir.types import Buffer, DType

Body = Callable[[Builder, SimpleNamespace], None]


def glob(name: str, dtype: DType, size: int) -> Buffer:
    return Buffer(name, dtype, size, "global")


def shared(name: str, dtype: DType, size: int, align: int = 16) -> Buffer:
    return Buffer(name, dtype, size, "shared", align)


def kernel(body: Body, params: tuple[Buffer | Value, ...] = (), sh: tuple[Buffer, ...] = (), *, threads: int = 32,
           grid: tuple[int, int, int] = (1, 1, 1), cluster: int = 1) -> w.Func:  # fmt: skip
    """The function whose body ``body(builder, built-ins)`` emits."""
    empty = w.Func("k", params, sh, grid, threads, (), cluster=cluster)
    b = Builder()
    names = empty.builtins()
    b.reserve(*names, *(p.name for p in params), *(s.name for s in sh))
    body(b, SimpleNamespace(**names))
    return w.Func("k", params, sh, grid, threads, b.ops(), cluster=cluster)


def zeros(f: w.Func, **given: Any) -> dict[str, Any]:
    """Arguments: those given, and zeros for the other buffers."""
    out: dict[str, Any] = {}
    for p in f.params:
        if p.name in given:
            out[p.name] = given[p.name]
        else:
            assert isinstance(p, Buffer)
            out[p.name] = np.zeros(p.size, p.dtype.numpy())
    return out


def clean(f: w.Func, args: Mapping[str, Any] | None = None, **kw: Any) -> tuple[dict[str, Any], Report]:
    """Runs a kernel that must have no errors."""
    a = zeros(f) if args is None else zeros(f, **args)
    r = run(f, a, **kw)
    assert r.ok, str(r)
    return a, r


def faulty(f: w.Func, kind: str, remedy: str, args: Mapping[str, Any] | None = None, **kw: Any) -> Report:
    """Runs a kernel that must show errors of one kind only, and a remedy that says ``remedy``."""
    r = run(f, zeros(f, **(args or {})), **kw)
    assert r.kinds() == {kind}, str(r)
    assert any(remedy in e.remedy for e in r.errors), str(r)
    assert all(e.op and e.message for e in r.errors)
    return r


def nothing(_: Builder) -> None:
    """No order at all."""


def barrier(b: Builder) -> None:
    """The threads of the block meet."""
    b.barrier()


def sync(b: Builder) -> None:
    """The lanes of the warp meet."""
    b.sync()
