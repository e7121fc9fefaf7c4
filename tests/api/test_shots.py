"""Batches of shots: each item has its own signals and records, which are those of a call for it alone, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.ir.errors import ArrayError, StencilError
from sparsegen.ir.parse import parse_module
from sparsegen.ir.text import print_module
from tests.api.test_sites import SCHEDULES, SHAPES, two

ITEMS, STEPS = 3, 5
CASES = [(axes, line) for axes, lines in SCHEDULES.items() for line in (*lines, "reference")]


def survey(axes: int, dtype: str = "f64") -> Any:
    """Sources of both fields, and receivers of one, between cells and on them."""
    top = np.array(SHAPES[axes]) - 1
    rng = np.random.default_rng(axes)
    return two(axes, sg.neumann, dtype).with_sites(
        shot=sg.Source(rng.random((2, axes)) * top, field="v"), more=sg.Source(np.floor(top / 2)[None], field="u"),
        heard=sg.Receiver(rng.random((4, axes)) * top, field="v"),
    )  # fmt: skip


def compiled(update: Any, shape: Any, steps: int, line: str, **options: Any) -> Any:
    how = {"backend": "reference"} if line == "reference" else {"backend": "emulator", "schedule": line}
    return sg.compile(update, shape, steps, device="h100", **how, **options)


def item_of(given: dict[str, Any], item: int, shared: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a call for one item alone is given."""

    def one(name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(level[item] for level in value)
        return value if name in shared or name == "dt" else value[item]

    return {name: one(name, value) for name, value in given.items()}


def flat(result: Any) -> list[Any]:
    return [a for part in result for a in flat(part)] if isinstance(result, tuple) else [result]


@pytest.mark.parametrize(("axes", "line"), CASES)
def test_every_item_is_as_a_call_for_it_alone(axes: int, line: str) -> None:
    """Passes of several steps, and calls of another number than the compiled one, which is no multiple of them."""
    update, shape = survey(axes), SHAPES[axes]
    k = compiled(update, shape, STEPS, line, batch=ITEMS, shared="more")
    one = compiled(update, shape, STEPS, line if line == "reference" else str(k.schedule))
    for steps in (STEPS, 2 * STEPS + 1):
        other = compiled(update, shape, steps, "reference", batch=ITEMS, shared="more")
        given = other.random()
        made = flat(k(**given, steps=steps))
        assert made[-1].shape == (ITEMS, steps, 4)
        for i in range(ITEMS):
            want = flat(one(**item_of(given, i, ("more",)), steps=steps))
            assert all(np.array_equal(a[i], b) for a, b in zip(made, want, strict=True))
        for a, b in zip(made, flat(other(**given)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
    assert line == "reference" or not k.check().errors


def test_auto_takes_a_schedule_for_all_items_and_its_cost_has_the_sites_of_all() -> None:
    update, shape = survey(2), (512, 512)
    k = compiled(update, shape, 20, "auto", batch=64)
    alone = compiled(update, shape, 20, str(k.schedule))
    few, many = alone.cost.values["sites"], k.cost.values["sites"]
    assert few < many < 64 * few  # windows of one item leave most multiprocessors idle
    assert few < alone.cost.time < k.cost.time < 64 * alone.cost.time
    assert "sites" in str(k.explain())


def test_records_of_narrow_fields_are_wide() -> None:
    k = compiled(survey(2, "f16"), SHAPES[2], 3, "stream levels=3 cols=8", batch=2)
    one = compiled(k.update, SHAPES[2], 3, str(k.schedule))
    given = k.random()
    record = k(**given)[-1]
    assert record.dtype == np.float32
    assert all(np.array_equal(record[i], one(**item_of(given, i))[-1]) for i in range(2))


def test_one_signal_for_all_items_or_points_is_given_to_each() -> None:
    k = compiled(survey(2), SHAPES[2], STEPS, "reference", batch=ITEMS)
    rng, given = np.random.default_rng(0), k.random()
    times, points, items = rng.random(STEPS), rng.random((STEPS, 2)), rng.random((ITEMS, STEPS, 1))
    for signal, whole in (
        (times, times[None, :, None]), (list(times), times[None, :, None]), (points, points[None]), (items, items),
    ):  # fmt: skip
        want = k(**{**given, "shot": np.broadcast_to(whole, (ITEMS, STEPS, 2))})
        assert all(np.array_equal(a, b) for a, b in zip(flat(k(**{**given, "shot": signal})), flat(want), strict=True))
    for wrong in (rng.random((STEPS + 1, 2)), rng.random((ITEMS + 1, STEPS, 2)), rng.random((ITEMS, STEPS, 3))):
        with pytest.raises(ArrayError, match=r"shot has shape (.|\n)*\[3, 5, 2\]: for each item a row"):
            k(**{**given, "shot": wrong})


def test_a_batch_of_one_has_the_axis() -> None:
    k = compiled(survey(2), SHAPES[2], STEPS, "direct", batch=1)
    given = k.random()
    assert given["shot"].shape == (1, STEPS, 2)
    record = k(**given)[-1]
    one = compiled(survey(2), SHAPES[2], STEPS, str(k.schedule))
    assert record.shape == (1, STEPS, 4) and np.array_equal(record[0], one(**item_of(given, 0))[-1])


def test_a_run_has_the_records_of_all_items() -> None:
    update, line = survey(2), "stream levels=3 cols=4"
    k = compiled(update, SHAPES[2], 3, line, batch=2, shared="more")
    whole = compiled(update, SHAPES[2], 11, "reference", batch=2, shared="more")
    given = whole.random()
    *_, last = k.run(**given, steps=11, every=4, progress=False)
    fields, record = whole(**given)
    assert last.records["heard"].shape == (2, 11, 4)
    np.testing.assert_allclose(last.records["heard"], record, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(last["u"], fields[0], rtol=1e-11, atol=1e-12)
    for i in range(2):
        alone = compiled(update, SHAPES[2], 3, line)
        *_, frame = alone.run(**item_of(given, i, ("more",)), steps=11, every=4, progress=False)
        assert np.array_equal(frame.records["heard"], last.records["heard"][i])


def test_programs_are_text_and_counted_for_all_items() -> None:
    k = compiled(survey(2), SHAPES[2], STEPS, "stream levels=3 cols=4", batch=4, shared="shot")
    text = str(k.ir("warp"))
    assert str(print_module(parse_module(text))) == text and "apart.out.steps.heard" in text
    assert "apart.in.steps.more" in text and "apart.in.steps.shot" not in text
    many, one = (compiled(survey(2), SHAPES[2], 2, "direct", batch=batch).counts() for batch in (4, None))
    assert many["bytes.global.write"] == 4 * one["bytes.global.write"]


def test_what_cannot_be_shared() -> None:
    with pytest.raises(StencilError, match=r"no such coefficient or source(.|\n)*shot, more"):
        compiled(survey(2), SHAPES[2], STEPS, "reference", batch=2, shared="heard")
    k = compiled(survey(2), SHAPES[2], STEPS, "reference", batch=2)
    with pytest.raises(ArrayError, match=r"indices are 32 bits wide"):
        k(**k.random(), steps=1 << 30)
