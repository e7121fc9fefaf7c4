"""Small tensors summed over the GPUs of a host in one launch of our own, where NCCL takes longer.

All ranks of a group agree once whether they reach each other; then whether a tensor is summed so follows from its shape
and type.  The kernel is ``all-reduce`` (:mod:`sparsegen.ir.kernels.all_reduce`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final
from weakref import WeakKeyDictionary

from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.backends.cuda.cache import compile_cached
from sparsegen.backends.cuda.frame import translation_unit
from sparsegen.backends.cuda.runtime import open_runtime
from sparsegen.distributed.over_nvlink import MODULE, address, reached
from sparsegen.ir.errors import SparsegenError
from sparsegen.ir.kernels.all_reduce import AllReduceKernel
from sparsegen.ir.module import Module
from sparsegen.ir.op_all_reduce import MOST_RANKS, PIECE, SUMMED, AllReduce
from sparsegen.ir.passes.dce import Dce
from sparsegen.ir.passes.manager import Manager
from sparsegen.ir.passes.simplify import Simplify
from sparsegen.ir.passes.to_warp import ToWarp
from sparsegen.ir.types import Buffer
from sparsegen.target import launcher

#: Bytes that a GPU gets from all others in a launch, at most: of more NCCL is as fast.
MOST_BYTES: Final = 1 << 20
#: Clock cycles of a unit of patience.
_UNIT: Final = 1 << 20
#: Seconds that a group waits whose torch does not say how long: torch's default for NCCL.
_PATIENCE: Final = 600.0

_kept: WeakKeyDictionary[Any, NearSums | None] = WeakKeyDictionary()


def module(ranks: int, rank: int, patience: int) -> Module:
    """The kernels of a rank, one for each type; ``patience``: as of ``op.all_reduce``."""
    most = MOST_BYTES // (ranks - 1) // PIECE
    ops = tuple(AllReduce(f"all_reduce_{dtype}", dtype, ranks, rank, most, patience) for dtype in SUMMED)
    return Manager((AllReduceKernel(), ToWarp(), Simplify(), Dce())).run(Module("all_reduce", ops))


def near_sums(group: Any, device: Any) -> NearSums | None:
    """The sums of a group of torch's, None where they are NCCL's or gloo's alone; the first call is collective.

    ``device``: this rank's.
    """
    if group not in _kept:
        _kept[group] = _agreed(group, device)
    return _kept[group]


def _agreed(group: Any, device: Any) -> NearSums | None:
    """All ranks have the kernels and reach each other, or none uses them."""
    dist = import_module("torch.distributed")
    ranks = dist.get_world_size(group)
    if not 2 <= ranks <= MOST_RANKS or device.type != "cuda" or dist.get_backend(group) != "nccl":
        return None
    every: list[Any] = [None] * ranks
    dist.all_gather_object(every, address(device), group=group)
    loaded = _loaded(group, device, ranks, dist.get_rank(group)) if reached(device, every) else None
    dist.all_gather_object(every, loaded is not None, group=group)
    return NearSums(group, device, ranks, loaded) if loaded is not None and all(every) else None


def _loaded(group: Any, device: Any, ranks: int, rank: int) -> dict[str, Callable[..., None]] | None:
    """What launches the kernel of each type; None for a GPU, a driver or a compiler that cannot."""
    torch = import_module("torch")
    try:
        if launcher() != "driver":
            return None
        runtime = open_runtime(device.index, "driver")
        info = runtime.info()
        if not info.cooperative:
            return None
        options = getattr(group._get_backend(torch.device("cuda")), "options", None)
        waits = options._timeout.total_seconds() if options is not None else _PATIENCE
        made = module(ranks, rank, min(int(waits * info.clock_hz) // _UNIT, (1 << 32) - 1))
        loaded = runtime.load(
            compile_cached(translation_unit(made, title="all-reduce", arch=info.arch), info.arch).cubin
        )
        starts = {}
        for func in made.funcs:
            of: Any = func
            pointers = [("ptr", 0) for p in of.params if isinstance(p, Buffer) and p.space == "global"]
            args = PackedArgs([*pointers, ("bytes@4", bytes(4))], numbers=len(pointers))
            found = runtime.function(loaded, of.symbol)
            start = runtime.prepare(found, of.grid, (of.threads, 1, 1), 0, args, together=True)
            starts[of.symbol.removeprefix("all_reduce_")] = start
        return starts
    except SparsegenError:
        return None


class NearSums:
    """Sums over the GPUs of a group, each of which has a buffer that all others write.

    ``starts``: what launches the kernel of each type.  Making one is a collective call.
    """

    def __init__(self, group: Any, device: Any, ranks: int, starts: dict[str, Callable[..., None]]) -> None:
        torch, symmetric = import_module("torch"), import_module(MODULE)
        self._torch, self._device, self._starts = torch, device, starts
        self._most = MOST_BYTES // (ranks - 1)
        room = 4 * ranks * self._most
        self._memory = symmetric.empty(room, dtype=torch.uint8, device=device).zero_()
        self._epoch = torch.zeros(AllReduceKernel().blocks, dtype=torch.int32, device=device)
        torch.cuda.synchronize(device)  # before others write there
        self._handle = symmetric.rendezvous(self._memory, group)
        buffers = [self._handle.get_buffer(rank, (room,), torch.uint8, 0) for rank in range(ranks)]
        self._fixed = [*(buffer.data_ptr() for buffer in buffers), self._epoch.data_ptr()]
        self._last: Any = None

    def take(self, shape: Sequence[int], dtype: Any) -> bool:
        """Whether tensors of a shape and type are summed so: the same on all ranks."""
        nbytes = self._torch.Size(shape).numel() * dtype.itemsize
        return str(dtype) in _NAMES and 0 < nbytes <= self._most and nbytes % PIECE == 0

    def __call__(self, y: Any) -> Any:
        """The sum of all ranks' ``y``, which ``take`` takes, as a new tensor: in the order of ranks, in f32, rounded
        once, so that all of them get the same numbers."""
        cuda, y = self._torch.cuda, y.detach().contiguous()
        if y.data_ptr() % PIECE:
            y = y.clone()
        out = self._torch.empty_like(y)
        stream = cuda.current_stream(self._device)
        if not cuda.is_current_stream_capturing():  # of graphs their replays are in order, or it is the user's error
            if self._last is not None and self._last != stream:
                stream.wait_stream(self._last)
            self._last = stream
        pointers = (y.data_ptr(), out.data_ptr(), *self._fixed)
        self._starts[_NAMES[str(y.dtype)]](pointers, stream.cuda_stream, struct.pack("<i", y.nbytes // PIECE))
        return out


#: What torch calls the types, and the kernels.
_NAMES: Final = {"torch.float16": "f16", "torch.bfloat16": "bf16", "torch.float32": "f32"}
