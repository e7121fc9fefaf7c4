"""How the cases of suite ``models`` are measured: the dense decoder first, which then becomes the sparse one, in place.

The time of a step is that of a CUDA graph in a run of all tokens, between events.  Where it goes: the layers that are
pruned, the head, and attention, each alone as a graph of all its calls in a step; the rest is what is left.  Memory is
the most that torch had allocated while one decoder was there and generated, and what was taken outside of torch.
"""

from __future__ import annotations

import gc
import importlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sparsegen.bench.harness import nothing, reason
from sparsegen.bench.models import AGREEMENT, TOLERANCE, ModelCase, ModelRow
from sparsegen.ir.errors import DeviceError

if TYPE_CHECKING:
    from sparsegen.bench.generation import Run


class Models:
    """Suite ``models``, with torch on ``device``; ``seed`` is the first of the random weights and prompts."""

    def __init__(self, seed: int = 0, device: str = "cuda") -> None:
        """DeviceError without torch."""
        try:
            self.torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise DeviceError("decoders are measured with torch", hint="pip install torch") from error
        self.seed, self.device = seed, self.torch.device(device)

    def run(
        self,
        cases: Sequence[ModelCase],
        say: Callable[[str], None] = nothing,
        keep: Callable[[Sequence[ModelRow]], None] = nothing,
    ) -> list[ModelRow]:
        """Measure all cases, those of one model together; one that fails is a row that says why.

        ``keep`` gets the rows that there are after each one.
        """
        start, rows = time.perf_counter(), list[ModelRow]()

        def done(row: ModelRow) -> None:
            rows.append(row)
            keep(rows)
            say(f"{line(row)}, by {time.perf_counter() - start:.0f} s")

        for _, group in groupby(cases, lambda case: (case.part, case.config, case.pruned, case.joined, case.compiled)):
            alike, first = list(group), len(rows)
            try:
                for row in self._measured(alike):
                    done(row)
            except Exception as error:  # those rows' alone: other models may do
                why = reason(error)
                for case in alike[len(rows) - first :]:
                    done(ModelRow(**self._labels(case), failed=why))
            if alike[0].compiled:
                self.torch._dynamo.reset()  # its graphs may hold the model
            gc.collect()  # before the next one is made
            if self.device.type == "cuda":
                self.torch.cuda.empty_cache()
        return rows

    def _measured(self, cases: Sequence[ModelCase]) -> Iterator[ModelRow]:
        """The rows of cases that differ in their batch alone."""
        made, generation = (importlib.import_module(f"sparsegen.bench.{name}") for name in ("decoder", "generation"))
        case = cases[0]
        with self.torch.no_grad():
            model = made.decoder(case.config, self.device, self.torch.float16, self.seed)
            generation.mask(model, case.pruned)
            if case.joined:
                model.join()
            if case.compiled:
                for layer in model.body.layers:
                    layer.compile(dynamic=False, fullgraph=True)
            prompts = [self._prompts(each) for each in cases]
            dense = [generation.run(model, *each) for each in zip(cases, prompts, strict=True)]
            generation.encode(model, case.pruned, tuple({case.prompt, *(each.batch for each in cases)}))
            for each, ids, theirs in zip(cases, prompts, dense, strict=True):
                yield self._row(each, generation.run(model, each, ids, theirs.ids), theirs)

    def _prompts(self, case: ModelCase) -> Any:
        """Random tokens int64 [batch, prompt]."""
        draw = self.torch.Generator().manual_seed(self.seed + case.batch)
        return self.torch.randint(case.config.vocab, (case.batch, case.prompt), generator=draw).to(self.device)

    def _labels(self, case: ModelCase) -> dict[str, Any]:
        """What every row says of its case."""
        return {
            "part": case.part, "case": case.config.name, "shape": (case.batch, case.prompt, case.generated),
            "dtype": "f16", "seed": self.seed, "layers": case.config.layers, "pattern": case.pruned.name,
            "joined": case.joined, "compiled": case.compiled, "target": case.least, "aim": case.aim,
        }  # fmt: skip

    def _row(self, case: ModelCase, ours: Run, theirs: Run) -> ModelRow:
        """What two decoders did with the same tokens, judged."""
        a, b = ours.scores.float(), theirs.scores.float()
        error = float((a - b).norm() / b.norm())
        agreement = float((a.argmax(-1) == b.argmax(-1)).float().mean())
        met = theirs.steps.median / ours.steps.median >= (case.least or 0)
        return ModelRow(
            **self._labels(case), **ours.steps.fields, dense_s=theirs.steps.median, split=ours.split,
            dense_split=theirs.split, memory=ours.memory, dense_memory=theirs.memory,
            error=error if math.isfinite(error) else math.inf, agreement=agreement,
            ok=error <= TOLERANCE and agreement >= AGREEMENT and met,
        )  # fmt: skip


def line(row: ModelRow) -> str:
    """A row as a line of progress."""
    how = ", joined" * row.joined + ", compiled" * row.compiled
    what = f"{row.case}, {row.layers} layers, {row.pattern}, batch {row.shape[0]}{how}"
    if row.median_s is None or row.dense_s is None:
        return f"{what}: {row.failed}"
    told = f"{row.median_s * 1e3:.2f} ms a step, dense {row.dense_s * 1e3:.2f} ({row.dense_s / row.median_s:.2f} times)"
    return f"{what}: {told}, error {row.error:.1e}, {row.agreement:.1%} alike{'' if row.ok else ', NOT OK'}"
