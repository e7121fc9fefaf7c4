"""How suite ``distributed`` is measured: by all ranks together, rank 0 of which keeps the rows."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import sparsegen as sg
from sparsegen.bench import report
from sparsegen.bench.distributed import FORMS, NAME, WEAK, Form, Row
from sparsegen.bench.harness import reason
from sparsegen.bench.lab import Timing
from sparsegen.distributed.over_torch import torch_distributed
from sparsegen.ir.errors import DeviceError, SparsegenError

#: Calls that are timed, after one that is not; seconds that one of them should take.
CALLS: Final = 3
SECONDS: Final = 1.5
#: Bytes of a message whose speed is measured, and of one that is over at once; how often.
LONG: Final = 1 << 28
SHORT: Final = 8
TIMES: Final = 20


class Measured:
    """The suite on this process's GPU, one of several; a call on one GPU takes about so many ``seconds``.

    ``device`` and ``backend`` are others only where the suite itself is tried.
    """

    def __init__(self, seconds: float = SECONDS, device: str = "cuda", backend: str = "cuda") -> None:
        self.dist, self.torch = torch_distributed(), import_module("torch")
        self.seconds, self.device, self.backend = seconds, device, backend
        self.rank, self.ranks = self.dist.get_rank(), self.dist.get_world_size()

    def run(self, forms: Sequence[Form], say: Callable[[str], None]) -> Iterator[Row]:
        """The rows, one after another; a form that fails on a rank fails on all of them."""
        if self.ranks > 1:
            yield self.link()
        for form in forms:
            say(f"{form.name}, strong")
            yield from self._form(form, "strong", form.shape, form.speedup)
            for block in ((form.shape[0] // 2, *form.shape[1:]), form.block or form.shape):
                say(f"{form.name}, weak, {block} a rank")
                yield from self._form(form, "weak", block, WEAK)

    def link(self) -> Row:
        """Both ways between the first two ranks."""
        dist, torch, times = self.dist, self.torch, dict[int, float]()
        for nbytes in (SHORT, LONG):
            out, got = (torch.zeros(nbytes, dtype=torch.uint8, device=self.device) for _ in range(2))
            for repeat in range(2):
                self._wait()
                start = time.perf_counter()
                for _ in range(TIMES if self.rank < 2 else 0):
                    ops = [dist.P2POp(do, a, 1 - self.rank) for do, a in ((dist.isend, out), (dist.irecv, got))]
                    for work in dist.batch_isend_irecv(ops):
                        work.wait()
                self._wait()
                if repeat:
                    times[nbytes] = (time.perf_counter() - start) / TIMES
            dist.barrier()
        gbs = LONG / (times[LONG] - times[SHORT]) / 1e9
        return Row(part="link", case="both ways between two GPUs", shape=(LONG,), dtype="u8", ranks=2, gbs=gbs,
                   latency_s=times[SHORT], ok=True, repeats=TIMES)  # fmt: skip

    def _form(self, form: Form, part: str, cells: tuple[int, ...], target: float) -> Iterator[Row]:
        """A row for blocks in one piece, and one for two, over one GPU that has ``cells``: all of the domain, or in
        part ``weak`` as many as each rank."""
        what, weak = form.what, part == "weak"
        labels: dict[str, Any] = {"part": part, "case": form.name, "ranks": self.ranks}
        shape = (cells[0] * self.ranks, *cells[1:]) if weak else cells
        try:
            k = sg.compile(what, shape, 24 if len(shape) < 3 else 12, backend=self.backend)
            one = sg.compile(what, cells, k.steps, backend=self.backend) if weak else k
            steps, alone, want = self._alone(one)
        except SparsegenError as error:
            yield Row(**labels, shape=shape, dtype=what.dtype, failed=reason(error))
            return
        busy = self._busy(one, steps)
        for overlap in (False, True):
            row: dict[str, Any] = {**labels, "shape": shape, "dtype": what.dtype, "overlap": overlap, "steps": steps,
                                   "busy_s": busy}  # fmt: skip
            try:
                yield self._together(k, one, steps, alone, want, target, row)
            except (SparsegenError, self.torch.OutOfMemoryError) as error:
                yield Row(**row, failed=reason(error))

    def _given(self, k: Any) -> dict[str, Any]:
        """Small random numbers on the GPU, the same on every rank."""
        made = self.torch.Generator(device=self.device).manual_seed(1)
        kind = getattr(self.torch, k.dtype.name)

        def one() -> Any:
            return self.torch.rand(k.shape, generator=made, dtype=kind, device=self.device).mul_(_most(k))

        levels = {name: len(arrays) for name, arrays in k._calls.parameters.items()}
        return {name: tuple(one() for _ in range(n)) if n > 1 else one() for name, n in levels.items()}

    def _alone(self, k: Any) -> tuple[int, float, Any]:
        """Steps of a call, its seconds on one GPU, and its result on rank 0; the others wait.

        DeviceError on all of them where rank 0 fails.
        """
        torch, want = self.torch, None
        found: list[Any] = [0, 0.0, ""]
        if self.rank == 0:
            try:
                given = self._given(k)
                want = k(**given)
                many = max(1, round(self.seconds / self._seconds(lambda: k(**given, out=want)))) * k.steps
                k(**given, out=want, steps=many)
                times = [self._seconds(lambda: k(**given, out=want, steps=many)) for _ in range(CALLS)]
                found = [many, Timing.of(times).median, ""]
            except (SparsegenError, torch.OutOfMemoryError) as error:
                found[2] = reason(error)
            given = {}
        torch.cuda.empty_cache()
        self.dist.broadcast_object_list(found, src=0)
        if found[2]:
            raise DeviceError(found[2], hint="see what rank 0 says")
        return found[0], found[1], want

    def _busy(self, k: Any, steps: int) -> float:
        """Seconds of the slowest GPU where each of them does on its own, at once, what one did alone."""
        given = self._given(k)
        made = k(**given)
        times = [self._slowest(lambda: k(**given, out=made, steps=steps)) for _ in range(CALLS)]
        given, made = {}, None
        self.torch.cuda.empty_cache()
        return Timing.of(times).median

    def _slowest(self, call: Callable[[], object]) -> float:
        """Seconds of a call on the rank that takes longest; a collective call."""
        self.dist.barrier()
        spent = self.torch.tensor([self._seconds(call)], device=self.device)
        self.dist.all_reduce(spent, op=self.dist.ReduceOp.MAX)
        return float(spent)

    def _wait(self) -> None:
        """Until all work of this rank is done."""
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def _seconds(self, call: Callable[[], object]) -> float:
        self._wait()
        start = time.perf_counter()
        call()
        self._wait()
        return time.perf_counter() - start

    def _together(
        self, k: Any, one: Any, steps: int, alone: float, want: Any, target: float, row: dict[str, Any]
    ) -> Row:
        """``k`` over all ranks, against ``one`` alone, which took ``alone`` seconds and made ``want``."""
        torch = self.torch
        d = sg.distribute(k, (self.ranks,), overlap=row["overlap"])
        whole = self._given(k)
        mine = {
            name: tuple(a[d.block].clone() for a in value) if isinstance(value, tuple) else value[d.block].clone()
            for name, value in whole.items()
        }
        del whole
        torch.cuda.empty_cache()
        made = d(**mine, steps=steps)
        times = [self._slowest(lambda: d(**mine, out=made, steps=steps)) for _ in range(CALLS)]
        newest = made[0] if isinstance(made, tuple) else made
        error = None
        if one is k:
            gathered = d.gather(newest)
            if self.rank == 0:
                expected = want[0] if isinstance(want, tuple) else want
                error = int(torch.count_nonzero(gathered != expected)) / expected.numel()
        timing, told = Timing.of(times), d.explain()
        speedup, predicted = alone / timing.median, one.cost.time_per_step * told.steps / told.time
        return Row(
            **row, **timing.fields, schedule=str(d.schedule), alone_s=alone, speedup=speedup, predicted=predicted,
            target=target, sent=told.sent, error=error, ok=not error and speedup >= target,
        )  # fmt: skip


def _most(k: Any) -> float:
    """The largest random number of a form: small for updates, whose waves are stable then."""
    return 0.1 if k.problem.op == "update" else 1.0


def beside(found: dict[str, Any], file: Path) -> dict[str, Any]:
    """A result with the other parts that a file has, if it is there."""
    return report.merged(report.load(file), found) if file.is_file() else found


def main() -> int:
    """Measure on all ranks; rank 0 writes the file after every row and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", metavar="FILE.json", type=Path, help="file for the result")
    parser.add_argument("--form", action="append", choices=[f.name for f in FORMS], help="only these; repeatable")
    parser.add_argument("--commit", help="the commit of a copy without .git")
    args = parser.parse_args()
    torch, dist = import_module("torch"), import_module("torch.distributed")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    suite, rows = Measured(), list[Row]()
    first = suite.rank == 0
    head = report.header(SECONDS, False, 1, args.commit) if first else {}
    start = time.perf_counter()

    def say(line: str) -> None:
        if first:
            print(f"{time.perf_counter() - start:5.0f} s  {line}", file=sys.stderr, flush=True)

    for row in suite.run([f for f in FORMS if not args.form or f.name in args.form], say):
        rows.append(row)
        say(f"{row.case}: {row.failed or row.speedup or row.gbs}")
        if first and args.out:
            report.save(beside(report.result(NAME, rows, head), args.out), args.out)
    if first:
        print(report.text(report.result(NAME, rows, head)))
    dist.destroy_process_group()
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
