"""Suite ``batches``: its cases, how a result is judged, and its table."""

from __future__ import annotations

from typing import Any

import numpy as np

import sparsegen as sg
from sparsegen.bench import batches, tables
from sparsegen.bench.stencil_run import Row, labels, relative


def test_a_batch_is_compared_with_one_item() -> None:
    found = batches.cases()
    assert found[:2] == batches.cases(quick=True)
    for one, eight in zip(found[::2], found[1::2], strict=True):
        assert (one.batch, eight.batch) == (1, batches.ITEMS)
        assert eight.share and eight.share.of == (one,)
        row = labels(relative(eight, {one: 50.0}), "direct")
        assert row["shape"] == (batches.ITEMS, *one.shape)
        assert row["target"] == 50.0 * batches.LEAST


def test_an_item_that_is_wrong_is_found() -> None:
    k = sg.compile(batches.box("u8"), (12, 20), batch=3, backend="emulator")
    given = batches.inputs(k, 0)
    assert batches.apart(k, given) <= 1 / 255

    class Off:
        """A kernel whose last item is off."""

        def __getattr__(self, name: str) -> Any:
            return getattr(k, name)

        def __call__(self, **named: Any) -> Any:
            made = k(**named)
            made[2, 3, 4] ^= 0x80
            return made

    assert batches.apart(Off(), given) > 0.4  # type: ignore[arg-type]


def test_inputs_of_a_wave_are_those_of_all_items() -> None:
    wave = sg.compile(batches.cases()[-1].stencil, (12, 20), 2, batch=2, backend="reference")
    given = batches.inputs(wave, 1)
    assert [level.shape for level in given["u"]] == [(2, 12, 20)] * 2
    assert np.isfinite(batches.apart(wave, given))


def test_the_table() -> None:
    rows = [Row(**labels(case, "direct"), median_s=1e-4, p10=1e-4, p90=1e-4, gs_per_s=9.0) for case in batches.cases()]
    body = tables.VIEWS["batches"]["table"]({"rows": [row.as_json() for row in rows]})  # type: ignore[typeddict-item]
    assert [line[0] for line in body[1:]] == [case.name for case in batches.cases()]
    assert "8×1080×1920" in body[2][1]
