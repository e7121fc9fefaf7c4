"""Runs programs of this folder on the GPU: ``python -m tests.programs.run NAME`` runs one once, for compute-sanitizer.

Without a name it lists them.  ``--emulator`` runs the program there instead; ``--launches N`` runs it N times in a row
on the same arrays.  Exit status 1 if the result is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from sparsegen.backends import emulator
from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.backends.cuda.args import Value as ArgValue
from sparsegen.backends.cuda.cache import compile_cached
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.runtime import Runtime
from sparsegen.ir import warp as w
from sparsegen.ir.fragments import SHAPES, SPARSE
from sparsegen.ir.module import Module
from sparsegen.ir.types import Buffer
from sparsegen.target import open_gpu

from . import clusters, dense, fragments, heat2d_stream, ring_reduce, tensor_copies, transposes, warpgroups
from .case import Array, Case

HEATS = {**heat2d_stream.SIZES, **heat2d_stream.LARGE}
PRODUCTS = {**ring_reduce.SIZES, **ring_reduce.LARGE}
#: Name -> the case for a seed.  Those in LARGE are for the GPU only.
SMALL: dict[str, Callable[[int], Case]] = {
    **{f"heat2d_stream.{k}": partial(heat2d_stream.case, v) for k, v in heat2d_stream.SIZES.items()},
    **{f"ring_reduce.{k}": partial(ring_reduce.case, v) for k, v in ring_reduce.SIZES.items()},
    **{f"fragments.{k}": partial(fragments.case, k) for k in (*SHAPES, *SPARSE)},
    **{f"warpgroups.{k}": v.case for k, v in warpgroups.PROGRAMS.items()},
    **{f"clusters.{k}": v.case for k, v in clusters.PROGRAMS.items()},
    **{f"tensor_copies.{k}": v.case for k, v in tensor_copies.PROGRAMS.items()},
    **{f"transposes.{k}": partial(transposes.case, k) for k in transposes.TYPES},
    **{f"dense.{k}": lambda seed, v=v: v(seed=seed) for k, v in dense.PROGRAMS.items()},  # type: ignore[misc]
}
LARGE: dict[str, Callable[[int], Case]] = {
    **{f"heat2d_stream.{k}": partial(heat2d_stream.case, v) for k, v in heat2d_stream.LARGE.items()},
    **{f"ring_reduce.{k}": partial(ring_reduce.case, v) for k, v in ring_reduce.LARGE.items()},
    **{f"clusters.{k}": v.case for k, v in clusters.LARGE.items()},
}
CASES = {**SMALL, **LARGE}
#: Name -> the function alone.
FUNCS: dict[str, Callable[[], w.Func]] = {
    **{f"heat2d_stream.{k}": partial(heat2d_stream.build, v) for k, v in HEATS.items()},
    **{f"ring_reduce.{k}": partial(ring_reduce.build, v) for k, v in PRODUCTS.items()},
    **{f"fragments.{k}": partial(fragments.build, k) for k in (*SHAPES, *SPARSE)},
    **{f"warpgroups.{k}": v.func for k, v in warpgroups.PROGRAMS.items()},
    **{f"clusters.{k}": v.func for k, v in {**clusters.PROGRAMS, **clusters.LARGE}.items()},
    **{f"tensor_copies.{k}": v.func for k, v in tensor_copies.PROGRAMS.items()},
    **{f"transposes.{k}": partial(transposes.build, k) for k in transposes.TYPES},
}


def on_emulator(case: Case, *, seed: int = 0, batch: int | None = None, launches: int = 1) -> dict[str, Array]:
    """The arrays after the launches; an error that the emulator finds is raised."""
    args = case.fresh()
    for _ in range(launches):
        emulator.run(case.func, args, seed=seed, batch=batch, uninit=case.poison).raise_if_errors()
    return args


def on_gpu(case: Case, *, launches: int = 1, runtime: Runtime | None = None) -> dict[str, Array]:
    """The arrays after the launches."""
    rt = runtime or open_gpu(0)
    func, args = case.func, case.fresh()
    source = translation_unit(Module(func.symbol, (func,)), title=func.symbol)
    kernel = rt.function(rt.load(compile_cached(source, rt.info().arch).cubin), func.symbol, func.shared_bytes)
    values: list[tuple[str, ArgValue]] = []
    pointers: dict[str, int] = {}
    try:
        for p in func.params:
            assert isinstance(p, Buffer)
            if p.space == "param":
                values.append((f"bytes@{p.dtype.nbytes}", args[p.name].tobytes()))
                continue
            pointers[p.name] = rt.alloc(args[p.name].nbytes)
            rt.to_device(pointers[p.name], args[p.name])
            values.append(("ptr", pointers[p.name]))
        for _ in range(launches):
            args_of_launch = PackedArgs(values, rt.map_args(func))
            rt.launch(kernel, func.grid, (func.threads, 1, 1), func.shared_bytes, args_of_launch)
        rt.synchronize()
        for name, pointer in pointers.items():
            rt.to_host(args[name], pointer)
    finally:
        for pointer in pointers.values():
            rt.free(pointer)
    return args


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.run", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", nargs="?", choices=list(CASES), metavar="NAME")
    parser.add_argument("--emulator", action="store_true", help="run it there, with every check")
    parser.add_argument("--launches", type=int, default=1, metavar="N", help="launch it N times on the same arrays")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the random data")
    given = parser.parse_args()
    if given.name is None:
        print("\n".join(CASES))
        return 0
    case = CASES[given.name](given.seed)
    got = (on_emulator if given.emulator else on_gpu)(case, launches=given.launches)
    wrong = case.wrong(got)
    print(f"{given.name}: {wrong or 'ok'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
