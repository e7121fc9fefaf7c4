"""What batches cost: an item on its share of the GPU."""

from __future__ import annotations

import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile

H100 = load_profile("h100")
HEAT = sg.Stencil.from_weights([[0.0, 0.125, 0.0], [0.125, 0.5, 0.125], [0.0, 0.125, 0.0]])


def predicted(shape: tuple[int, ...], line: str, batch: int | None = None, steps: int = 4) -> float:
    k = sg.compile(HEAT, shape, steps=steps, schedule=line, batch=batch, device="h100", backend="emulator")
    return k.problem.seconds(k.cost, steps)


def test_shares() -> None:
    half = H100.share(2)
    assert (half.own_sms, half.bw_global) == (H100.sms / 2, H100.bw_global / 2)
    assert half.bw_shared == H100.bw_shared / 2
    assert H100.share(1) == H100
    assert H100.missed(0.6 * H100.l2_bytes) == pytest.approx(half.missed(0.3 * H100.l2_bytes))


@pytest.mark.parametrize("line", ["direct", "tiled", "stream levels=2", "stencil2row stages=2"])
def test_many_small_items_take_less_than_calls_for_each_and_large_ones_as_long_as_one_field(line: str) -> None:
    one, eight = predicted((256, 256), line), predicted((256, 256), line, 8)
    assert one / 1.1 < eight < 5 * one  # blocks of auto heights are not the best to the percent
    assert predicted((1024, 1024), line, 1) == predicted((1024, 1024), line)
    many, tall = predicted((1024, 4096), line, 16), predicted((16 * 1024, 4096), line)
    assert many == pytest.approx(tall, rel=0.06)


def test_the_rate_counts_all_items() -> None:
    k = sg.compile(HEAT, (512, 512), batch=8, device="h100", backend="emulator")
    assert k.cost.cells == 8 * 512 * 512
    assert k.cost.rate == pytest.approx(k.cost.cells / k.cost.time_per_step / 1e9)


def test_auto_knows_the_batch() -> None:
    """Fields of one item stay in registers for all steps; eight of them have no room there."""
    options = {"steps": 200, "device": "h100", "backend": "emulator"}
    assert sg.compile(HEAT, (512, 512), **options).schedule.family == "resident"
    assert sg.compile(HEAT, (512, 512), batch=64, **options).schedule.family != "resident"
    schedules = {str(c.schedule) for c in sg.schedules(HEAT, (512, 512), 200, "h100", batch=64)}
    assert not any(line.startswith("resident") for line in schedules)
