"""Suite ``models``: its cases, tiny decoders on the host, how rows are judged, the tables."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import Any

import pytest

from sparsegen.bench import command, models, report, tables
from sparsegen.bench.config import TINY_LLAMA, TINY_OPT
from sparsegen.bench.lab import Timing
from sparsegen.bench.models import ALIKE, ANYWHERE, PARTS, ModelCase, ModelRow, Pruned
from sparsegen.bench.models_run import Models, line
from tests.bench.test_bitmaps import HEAD

torch: Any = pytest.importorskip("torch")


def test_the_targets_are_the_issues() -> None:
    cases = models.cases(PARTS)
    asked = {(c.part, c.pruned.name, c.batch): (c.least, c.aim) for c in cases if c.least}
    assert asked == {
        (part, name, batch): goal
        for parts, name, batch, goal in (
            (("llama-8b", "llama-8b-joined", "llama-8b-compiled"), ANYWHERE.name, 1, (1.35, 1.6)),
            (("llama-8b-nm", "llama-8b-compiled"), ALIKE.name, 16, (1.8, 2.5)),
        )
        for part in parts
    }
    assert [(c.config.layers, c.batch, c.generated) for c in models.cases(["opt-13b"])] == [(40, 16, 256)]
    assert {c.part for c in cases if c.compiled} == {"llama-8b-compiled"}
    quick = models.cases(PARTS, quick=True)
    assert len(quick) == len(cases) and {(c.config.layers, c.least) for c in quick} == {(models.QUICK, None)}


def tiny(config: Any, pruned: Pruned, batch: int) -> ModelCase:
    return ModelCase("llama-8b", config, pruned, batch, prompt=5, generated=3)


def test_rows_and_their_tables() -> None:
    """Scores are those of the dense decoder with the same zeros; a model that cannot be made is rows that say why."""
    none = replace(ALIKE, m=4)
    asked = [tiny(TINY_OPT, ANYWHERE, 2), tiny(TINY_LLAMA, ALIKE, 1), tiny(TINY_LLAMA, ALIKE, 3),
             tiny(TINY_OPT, none, 1), tiny(TINY_OPT, none, 2),
             replace(tiny(TINY_LLAMA, ANYWHERE, 1), joined=True)]  # fmt: skip
    said, kept = list[str](), list[int]()
    rows = Models(7, "cpu").run(asked, said.append, lambda so_far: kept.append(len(so_far)))
    assert kept == [1, 2, 3, 4, 5, 6] and len(said) == 6
    for case, row in zip(asked, rows, strict=True):
        assert row.shape == (case.batch, 5, 3) and row.pattern == case.pruned.name
        if case.pruned is none:
            assert not row.ok and "n=8 of every m=4" in (row.failed or "") and row.failed in line(row)
            continue
        assert row.ok and row.failed is None and row.error is not None and row.error < 2e-3 and row.agreement == 1
        assert row.split and row.memory and row.dense_memory and row.dense_split and row.median_s
        assert sum(row.split.values()) == pytest.approx(row.median_s) and {*row.split} == {*models.SPLIT}
        assert row.memory["weights"] < row.dense_memory["weights"] and row.memory["cache"] > 0
    found = report.result("models", rows, HEAD)
    head, first, *_ = tables.VIEWS["models"]["llama-8b"](found)
    shown = dict(zip(head, first, strict=True))
    assert shown["weights"] == "tiny OPT, 60 % zeros" and shown["batch"] == "2" and shown["same tokens"] == "100.0%"
    head, *body = tables.VIEWS["models"]["split"](found)
    assert len(body) == 4 and {"layers, ms", "attention, ms", "weights, GB", "cache, GB"} <= {*head}
    text = report.text(found)
    assert "n=8 of every m=4" in text and "attention, ms" in text and "same tokens" in text
    assert "| tiny Llama, 60 % zeros, joined | 1 |" in report.markdown(found, "split")


def test_how_a_row_is_judged() -> None:
    """Wrong scores, other tokens and too slow a step are not ok, each alone."""
    from sparsegen.bench.generation import Run

    scores = torch.randn(9, 2, 50, generator=torch.Generator().manual_seed(1))
    off = scores + 0.02 * torch.randn(scores.shape, generator=torch.Generator().manual_seed(2))
    turned = scores.clone()
    turned[:2] *= -1
    where = dict.fromkeys(models.SPLIT, 0.0)

    def run(scores: Any, seconds: float) -> Run:
        return Run(
            None,
            scores,
            Timing(seconds, seconds, seconds, 3),
            where,
            dict.fromkeys(("weights", "cache", "rest", "outside"), 0),
        )

    case, theirs = replace(tiny(TINY_OPT, ANYWHERE, 2), least=1.5), run(scores, 1.0)

    def row(scores: Any, seconds: float) -> ModelRow:
        return Models(1, "cpu")._row(case, run(scores, seconds), theirs)

    right = row(scores, 0.5)
    assert right.ok and right.error == 0 and right.agreement == 1
    assert not row(off, 0.5).ok and not row(turned, 0.5).ok and not row(scores, 0.8).ok
    assert not row(scores * torch.nan, 0.5).ok and row(scores * torch.nan, 0.5).as_json()["error"] == "inf"
    assert row(turned, 0.5).agreement == pytest.approx(7 / 9)


def test_the_command_measures_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the parts that are asked for; ``--quick``: of few layers."""
    asked = list[list[ModelCase]]()

    class Recorded(Models):
        def run(self, cases: Any, say: Any = None, keep: Any = None) -> list[ModelRow]:
            asked.append([*cases])
            return []

    monkeypatch.setattr(command.models_run, "Models", lambda seed: Recorded(seed, "cpu"))
    for quick in (False, True):
        assert command.rows(Namespace(suite="models", quick=quick), ["llama-8b-nm"], 7, lambda rows: None) == []
    assert [(case.part, case.batch, case.config.layers) for cases in asked for case in cases] == [
        ("llama-8b-nm", batch, layers) for layers in (32, models.QUICK) for batch in (1, 4, 16)
    ]
