"""How part ``products`` of suite ``distributed`` is measured: linear layers whose weights are split over the ranks.

    torchrun --nproc-per-node 2 -m sparsegen.bench.split_run --out docs/bench/distributed.json

A column-parallel layer keeps its outputs where they are made; a row-parallel one sums them by an all-reduce.  Seconds
are those of a call in a CUDA graph of some, which is how tokens are generated: the slowest rank's, between events.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from sparsegen.bench import report
from sparsegen.bench.distributed import NAME, Row
from sparsegen.bench.distributed_run import beside
from sparsegen.bench.harness import reason
from sparsegen.bench.lab import Timing
from sparsegen.distributed.over_torch import torch_distributed
from sparsegen.ir.errors import SparsegenError

#: Calls of a graph, and how often it is replayed.
CALLS: Final = 20
REPEATS: Final = 11
SPARSITY: Final = 0.6
#: Of f16 results whose sums are added in another order, rounded on the way.
TOLERANCE: Final = 4e-3


@dataclass(frozen=True)
class Layer:
    """A linear layer of random weights, how it is split, and how much faster than on one GPU it must be on two."""

    name: str
    outputs: int
    inputs: int
    columns: bool
    tokens: int = 16
    speedup: float = 1.6


LAYERS: Final = (
    Layer("column-parallel", 28672, 8192, True),
    Layer("row-parallel, all-reduce", 28672, 8192, False),
    Layer("row-parallel, all-reduce", 8192, 28672, False),
)


class Split:
    """The layers on this process's GPU, one of several; ``device`` is another only where this itself is tried."""

    def __init__(self, device: str = "cuda") -> None:
        self.dist, self.torch, self.device = torch_distributed(), import_module("torch"), device
        self.rank, self.ranks = self.dist.get_rank(), self.dist.get_world_size()
        made = import_module("torch.distributed.device_mesh").init_device_mesh
        self.mesh = made(device, (self.ranks,))

    def run(self, layers: Sequence[Layer], say: Callable[[str], None]) -> Iterator[Row]:
        """A row for each layer."""
        for layer in layers:
            say(f"{layer.name}, {layer.outputs} x {layer.inputs}")
            shape = (layer.outputs, layer.inputs)
            row: dict[str, Any] = {"part": "products", "case": layer.name, "shape": shape, "dtype": "f16",
                                   "ranks": self.ranks, "tokens": layer.tokens, "target": layer.speedup}  # fmt: skip
            try:
                with self.torch.no_grad():
                    yield self._row(layer, row)
            except (SparsegenError, self.torch.OutOfMemoryError) as error:
                yield Row(**row, failed=reason(error))

    def _row(self, layer: Layer, row: dict[str, Any]) -> Row:
        from torch.distributed.tensor.parallel import parallelize_module

        from sparsegen.torch import SparseColwise, SparseRowwise

        whole, x = self._made(layer)
        want, alone = whole(x), self._timing(lambda: whole(x), apart=True)
        style: Any = SparseColwise() if layer.columns else SparseRowwise()
        split = parallelize_module(whole, self.mesh, style)
        mine = x if layer.columns else x.chunk(self.ranks, -1)[self.rank].contiguous()
        expected = want.chunk(self.ranks, -1)[self.rank] if layer.columns else want
        off = (split(mine).float() - expected.float()).abs().max() / want.float().abs().max()
        self.dist.all_reduce(off, op=self.dist.ReduceOp.MAX)
        timing, error = self._timing(lambda: split(mine)), float(off)
        speedup = alone.median / timing.median
        kernel = split._bound()._compiled.get(layer.tokens, split.bias is not None)
        return Row(
            **row, **timing.fields, alone_s=alone.median, speedup=speedup, error=error, schedule=str(kernel.schedule),
            ok=error <= TOLERANCE and speedup >= layer.speedup,
        )  # fmt: skip

    def _made(self, layer: Layer) -> tuple[Any, Any]:
        """The whole layer, the same on every rank, and what it is given."""
        from sparsegen.torch import SparseLinear

        torch = self.torch
        torch.manual_seed(7)
        with torch.device(self.device):
            dense = torch.nn.Linear(layer.inputs, layer.outputs, False, dtype=torch.float16)
            x = torch.rand(layer.tokens, layer.inputs).sub_(0.5).half()
        made = SparseLinear.from_linear(dense, SPARSITY, dense_above=None)
        made.prepare((layer.tokens,))
        return made, x

    def _timing(self, call: Callable[[], Any], *, apart: bool = False) -> Timing:
        """Seconds of a call, of the slowest rank: all at once, or ``apart`` on the first one alone."""
        times = list[float]()
        replay = self._recorded(call) if not apart or self.rank == 0 else float
        for _ in range(REPEATS):
            self.dist.barrier()
            spent = replay()
            found = self.torch.tensor([spent / CALLS], dtype=self.torch.float64, device=self.device)
            self.dist.all_reduce(found, op=self.dist.ReduceOp.MAX)
            times.append(float(found))
        return Timing.of(times)

    def _recorded(self, call: Callable[[], Any]) -> Callable[[], float]:
        """What makes CALLS calls and says how many seconds they took."""
        torch = self.torch
        call()

        def often() -> None:
            for _ in range(CALLS):
                call()

        if self.device != "cuda":

            def plain() -> float:
                start = time.perf_counter()
                often()
                return time.perf_counter() - start

            return plain
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL has a thread that asks for events
            often()

        def replay() -> float:
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            stop.record()
            torch.cuda.synchronize()
            return float(start.elapsed_time(stop)) * 1e-3

        replay()
        return replay


def main() -> int:
    """Measure on all ranks; rank 0 writes the rows into the file, beside the other parts, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", metavar="FILE.json", type=Path, help="file for the result")
    parser.add_argument("--commit", help="the commit of a copy without .git")
    args = parser.parse_args()
    torch, dist = import_module("torch"), import_module("torch.distributed")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    suite = Split()
    rows = list(suite.run(LAYERS, lambda line: print(line, file=sys.stderr, flush=True) if not suite.rank else None))
    if not suite.rank:
        found = report.result(NAME, rows, report.header(0.0, False, 1, args.commit))
        print(report.text(found))
        if args.out:
            report.save(beside(found, args.out), args.out)
    dist.destroy_process_group()
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
