"""A warp module by itself, without the problem that it was lowered from: its arrays by role, and its launches.

This is what ``sparsegen run FILE.sgir`` does; kernels of :func:`sparsegen.compile` run plans of such modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen import plan
from sparsegen.backends import emulator
from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.backends.cuda.args import Value as ArgValue
from sparsegen.backends.cuda.cache import compile_cached
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.runtime import Runtime
from sparsegen.ir import warp
from sparsegen.ir.errors import ArrayError, IRError
from sparsegen.ir.expr import Value
from sparsegen.ir.module import Launch, Module
from sparsegen.ir.node import buffers, walk
from sparsegen.ir.types import Buffer, DType

Arrays = dict[str, npt.NDArray[Any]]
#: Random integers are below this: most buffers are longer, so that they serve as indices.
INTEGERS = 8


@dataclass(frozen=True)
class Role:
    """What the launches bind to parameters under one name: its type, elements, and what they do with it."""

    name: str
    dtype: DType
    size: int
    read: bool
    written: bool


def launches(module: Module) -> tuple[plan.Bound, ...]:
    """Each launch: its function, and the role of each parameter.

    A module that says no launches is launched function by function, with the names of the parameters as roles.
    IRError for a function that is not of the warp level.
    """
    for f in module.funcs:
        if not isinstance(f, warp.Func):
            raise IRError(f"{f.name} cannot run: only the warp level does", loc=f.loc,
                          hint='lower it: sparsegen opt -p "…,to-warp,simplify,dce"')  # fmt: skip
    funcs = [f for f in module.funcs if isinstance(f, warp.Func)]
    runs = module.launches or tuple(Launch(f.symbol, tuple(p.name for p in f.params)) for f in funcs)
    return plan.launches(replace(module, launches=runs))


def roles(module: Module) -> dict[str, Role]:
    """Every role of the launches, constants included, in the order of the launches."""
    found: dict[str, Role] = {}
    for func, bound in launches(module):
        used = {way: {b.name for op in walk(func.body) for b in buffers(op, writes=way)} for way in (False, True)}
        for param, name in bound:
            size = param.size if isinstance(param, Buffer) else 1
            new = Role(name, param.dtype, size, isinstance(param, Value) or param.name in used[False],
                       param.name in used[True])  # fmt: skip
            old = found.get(name, new)
            if old.dtype is not new.dtype:
                raise IRError(f"role {name!r} is an array of {old.dtype} and of {new.dtype}", loc=func.loc,
                              hint="give the arrays two names in the launches")  # fmt: skip
            found[name] = replace(new, size=max(size, old.size), read=new.read or old.read,
                                  written=new.written or old.written)  # fmt: skip
    return found


def arrays(module: Module, given: Mapping[str, npt.NDArray[Any]], seed: int) -> Arrays:
    """A flat array for each role: the one that is given, the module's constant, random numbers where it is read only,
    else zeros.  ArrayError for one of a wrong name, type or size."""
    wanted, rng, out = roles(module), np.random.default_rng(seed), Arrays()
    if unknown := given.keys() - wanted.keys():
        raise ArrayError(f"no launch has an array {min(unknown)!r}", hint=f"they have {', '.join(wanted)}")
    for name, role in wanted.items():
        dtype = role.dtype.numpy()
        found = given.get(name, module.constants.get(name))
        if found is not None:
            if found.dtype != dtype or found.size != role.size:
                raise ArrayError(f"array {name!r} is {found.size} x {found.dtype}, not {role.size} x {dtype}",
                                 hint="give one of the type and size that the program declares")  # fmt: skip
            out[name] = np.array(found).reshape(-1)
        elif role.written:
            out[name] = np.zeros(role.size, dtype)
        elif role.dtype.kind == "float":
            out[name] = rng.random(role.size).astype(dtype)
        else:
            out[name] = rng.integers(0, min(INTEGERS, role.dtype.range[1] + 1), role.size).astype(dtype)
    return out


def on_emulator(module: Module, data: Arrays, seed: int = 0) -> list[tuple[str, emulator.Report]]:
    """Runs the launches on the emulator with every checker; changes the arrays.  The report of each, by its kernel."""
    found = []
    for func, bound in launches(module):
        args = {p.name: data[role] if isinstance(p, Buffer) else data[role][0].item() for p, role in bound}
        found.append((func.symbol, emulator.run(func, args, seed=seed)))
    return found


def on_gpu(module: Module, data: Arrays, runtime: Runtime, title: str) -> None:
    """Compiles the module for a GPU and runs its launches there; changes the arrays that they write."""
    arch = runtime.info().arch
    loaded = runtime.load(compile_cached(translation_unit(module, title=title, arch=arch), arch).cubin)
    pointers: dict[str, int] = {}
    try:
        for name, array in data.items():
            pointers[name] = runtime.alloc(array.nbytes)
            runtime.to_device(pointers[name], array.view(np.uint8))
        for func, bound in launches(module):
            values: list[tuple[str, ArgValue]] = []
            for p, role in bound:
                if not isinstance(p, Buffer):
                    values.append((f"{p.dtype.kind[0]}{p.dtype.bits}", data[role][0].item()))
                elif p.space == "param":
                    values.append((f"bytes@{p.dtype.nbytes}", data[role].tobytes()))
                else:
                    values.append(("ptr", pointers[role]))
            kernel = runtime.function(loaded, func.symbol, func.shared_bytes)
            args = PackedArgs(values, runtime.map_args(func))
            block = (func.threads, 1, 1)
            runtime.launch(kernel, func.grid, block, func.shared_bytes, args, together=func.together)
        runtime.synchronize()
        for name in (role.name for role in roles(module).values() if role.written):
            runtime.to_host(data[name].view(np.uint8), pointers[name])
    finally:
        for pointer in pointers.values():
            runtime.free(pointer)
