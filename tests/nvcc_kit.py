"""Many kernels through nvcc, few of them samples of very many: a translation unit costs half a second to begin with."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.nvcc import compile_cubin
from sparsegen.backends.cuda.resources import KernelResources
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.cost.devices import DeviceProfile
from sparsegen.cost.occupancy import Blocks
from sparsegen.ir import warp as w
from sparsegen.ir.module import Module

T = TypeVar("T")
needs_nvcc = pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
#: Units that are compiled at once.
UNITS = 2


def used(funcs: Sequence[w.Func], arch: str) -> list[KernelResources]:
    """What each kernel takes, by nvcc; in two units, under names of their own."""
    named = [dataclasses.replace(func, symbol=f"k{i}") for i, func in enumerate(funcs)]

    def unit(part: list[w.Func]) -> dict[str, KernelResources]:
        return compile_cubin(translation_unit(Module("sample", tuple(part)), title=arch), arch).resources

    parts = [part for i in range(UNITS) if (part := named[i::UNITS])]
    with ThreadPoolExecutor(UNITS) as pool:
        found = {name: r for resources in pool.map(unit, parts) for name, r in resources.items()}
    return [found[func.symbol] for func in named]


def fit(funcs: Sequence[w.Func], shapes: Sequence[Blocks | None], profile: DeviceProfile) -> None:
    """AssertionError unless nvcc takes the kernels without spills, each with the shared memory of its shape, if it has
    one, and registers of which as many blocks fit an SM as that says."""
    done = compile_cubin(translation_unit(Module("sample", tuple(funcs)), title="sums"), profile.arch)
    for func, g in zip(funcs, shapes, strict=True):
        use = done.resources[func.symbol]
        print(func.symbol, use.registers, g)
        assert not max(use.spill_stores, use.spill_loads, use.stack) and use.static_shared == 0, func.symbol
        if g is not None:
            assert func.shared_bytes == g.shared and func.min_blocks == g.resident, func.symbol
            assert use.registers * func.threads * g.resident <= profile.regs_sm, func.symbol


def library(file: Path, arch: str, *more: str) -> None:
    """AssertionError unless nvcc takes an exported file, beside its header, and has nothing to say."""
    nvcc, header = find_tool("nvcc"), file.with_suffix(".h")
    assert nvcc is not None
    command = [str(nvcc.path), "-c", "-std=c++17", f"-arch={arch}", "-include", str(header), str(file), *more]
    done = subprocess.run([*command, "-o", str(file.with_suffix(".o"))], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr


def covering(items: Collection[T], traits: Callable[[T], Iterable[Hashable]]) -> list[T]:
    """Few of the items that show every trait that one of them has: the one that adds most, again and again."""
    shows = [(item, set(traits(item))) for item in items]
    missing: set[Hashable] = set().union(*(found for _, found in shows))
    out: list[T] = []
    while missing:
        best, found = max(shows, key=lambda s: len(s[1] & missing))
        out.append(best)
        missing -= found
    return out


def together(sources: Iterable[str]) -> str:
    """One source with the kernels of several, below the longest of their heads, which defines what all of them use."""
    parts = [source.partition('extern "C"') for source in sources]
    return max((head for head, _, _ in parts), key=len) + "\n".join(mark + rest for _, mark, rest in parts)
