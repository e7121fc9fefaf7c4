"""What is predicted of a mesh: bytes that are counted by hand, what overlap hides, where a form stops scaling."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparsegen as sg
from sparsegen.bench import stencils, updates
from sparsegen.bench.distributed import FORMS, PARTS, Row, view
from sparsegen.cost.devices import load_profile, names, profile_from, tomllib
from sparsegen.cost.links import Link
from sparsegen.distributed.model import link_of, planned, predicted, split
from sparsegen.distributed.scaling import ENOUGH, simulate
from sparsegen.schedule import Schedule
from tests.updates import wave

H100 = load_profile("h100")
FINE = {"gpus": 8, "gbs": 9, "latency_s": 1e-5, "network_gbs": 1, "network_latency_s": 1e-5}
ROOT = Path(__file__).resolve().parents[2]


def heat(shape: tuple[int, ...], boundary: Any = sg.periodic, schedule: str = "stream levels=4") -> Any:
    return sg.compile(stencils.stencil("Heat-2D", boundary), shape, 40, "h100", "reference", schedule=schedule)


def test_bytes_are_those_of_the_halos() -> None:
    k = heat((4096, 2048))
    found = predicted(k.problem, H100, split(k.problem, (4,), k.schedule), k.schedule)
    assert found.sent == 2 * 4 * 2048 * 8  # two neighbours, 4 rows of f64
    both = predicted(k.problem, H100, split(k.problem, (2, 2), k.schedule), k.schedule)
    assert both.sent == 8 * (2 * 4 * 1024 + 2 * 4 * 2048 + 4 * 16)  # two sides a neighbour, and corners
    edge = heat((4096, 2048), sg.frozen)
    assert predicted(edge.problem, H100, split(edge.problem, (2,), edge.schedule), edge.schedule).sent == 4 * 2048 * 8
    update = sg.compile(wave(boundary=sg.periodic), (512, 512), 8, "h100", "reference", schedule="stream levels=3")
    told = predicted(update.problem, H100, split(update.problem, (2,), update.schedule), update.schedule)
    assert told.sent == 2 * 2 * 3 * 512 * 8  # both levels are new


def test_nothing_is_hidden_where_nothing_goes_on_beside_kernels() -> None:
    k = heat((20480, 20480))
    whole = split(k.problem, (2,), k.schedule)
    for n in (1, 2):
        found = predicted(k.problem, H100, whole.in_turns(n), k.schedule, beside=False)
        assert found.hidden == pytest.approx(0, abs=1e-9)
    assert predicted(k.problem, H100, whole, k.schedule).hidden == 1
    assert planned(k, (2,), None, beside=False)[1].turns == 1


def test_blocks_have_tiles_that_others_come_before() -> None:
    """On one GPU acoustic has one tile along the first axis, or two, which are both at an end."""
    k = sg.compile(updates.update("acoustic, order 8"), (1024, 1024, 512), 24, "h200", "reference")
    (schedule, partition), plain = planned(k, (2,), None), k.schedule.but(planes=None)
    assert partition.turns == 1 and schedule == plain.but(planes=174)
    cut, whole = (predicted(k.problem, k.device, partition, s) for s in (schedule, plain))
    assert (
        cut.hidden == 1
        and whole.hidden == pytest.approx(0, abs=1e-9)
        and sum(cut.work) > sum(whole.work)
        and cut.time < 0.96 * whole.time
    )
    assert planned(k, (2,), None, beside=False)[0] == plain


def test_overlap_hides_what_takes_longer_than_halos_cost() -> None:
    slow = replace(H100, link=Link(8, 5.0, 1e-5, 5.0, 2e-5))
    k = heat((20480, 20480))
    one = split(k.problem, (2, 2), k.schedule)
    apart, together = (predicted(k.problem, slow, one.in_turns(n), k.schedule) for n in (1, 2))
    assert apart.hidden == pytest.approx(0, abs=1e-9) and together.hidden > 0.9
    assert sum(together.work) > sum(apart.work) and together.time < apart.time
    assert 3.6 < together.speedup < 4 and "2x2 GPUs" in str(together)
    early = predicted(k.problem, slow, split(k.problem, (2,), k.schedule), k.schedule)
    assert early.hidden == 1 and early.time == sum(early.work) and 1.9 < early.speedup < 2.05
    small = heat((64, 64))
    assert planned(small, (2,), None)[1].turns == 1
    fast = replace(H100, link=Link(8, 2000.0, 1e-6, 5.0, 2e-5))
    k = sg.compile(k.stencil, k.shape, 40, fast, "reference", schedule=k.schedule)
    assert planned(k, (2,), None)[1].turns == 1  # so fast a link is waited for
    k = sg.compile(k.stencil, k.shape, 40, slow, "reference", schedule=k.schedule)
    assert planned(k, (2,), None)[1].turns == 1  # the ends of a piece come first
    schedule, chosen = planned(k, (2, 2), None)
    assert str(schedule) == str(k.schedule) and chosen.turns == 2


def test_messages_to_another_node_take_its_network() -> None:
    far = replace(H100, link=Link(1, 450.0, 1e-5, 10.0, 1e-4))
    k = heat((4096, 4096))
    one = split(k.problem, (2,), k.schedule)
    near, other = (predicted(k.problem, device, one, k.schedule) for device in (H100, far))
    link = H100.link
    assert link is not None
    more = 1e-4 - link.latency_s + near.sent * (1 / 10e9 - 1 / (link.gbs * 1e9))
    assert other.travel[0] - near.travel[0] == pytest.approx(more)


def test_resident_kernels_pass_by_another_schedule() -> None:
    k = sg.compile(wave(boundary=sg.periodic), (512, 512), 100, "h100", "reference", schedule="resident")
    schedule, _ = planned(k, (2,), False)
    assert schedule.family != "resident" and schedule.op == "update"


def test_resident_kernels_with_sites_pass_by_another_schedule() -> None:
    """Some of its sites lie beyond one rank's share."""
    sites = {"shot": sg.Source([[500.5, 30.0]]), "heard": sg.Receiver([[255.5, 7.25], [3.0, 511.0]])}
    update = wave(boundary=sg.periodic).with_sites(**sites)
    k = sg.compile(update, (512, 512), 100, "h100", "reference", schedule="resident")
    schedule, _ = planned(k, (2,), False)
    assert schedule.family != "resident" and schedule.op == "update"


def test_a_fixed_domain_stops_scaling_and_a_growing_one_does_not() -> None:
    form = FORMS[0]
    grown = simulate(form.what, (2048, 20480), 64, H100)
    assert grown.grid == (2048 * 64, 20480) and isinstance(grown.schedule, Schedule)
    assert grown.exchange.speedup / 64 > ENOUGH
    fixed = simulate(form.what, (20480, 20480), 1024, H100, grow=False)
    assert fixed.grid == (20480, 20480) and fixed.exchange.efficiency < ENOUGH
    with pytest.raises(sg.ArrayError, match="no mesh of 4099 GPUs fits"):
        simulate(form.what, (512, 512), 4099, H100, grow=False)


@pytest.mark.parametrize("name", names())
def test_every_profile_has_a_link(name: str) -> None:
    device = load_profile(name)
    assert device.link is not None and device.link.gbs >= device.link.network_gbs
    assert link_of(replace(device, link=None)) is not None  # as a measured profile
    with pytest.raises(sg.DeviceError, match="does not say what GPUs talk through"):
        link_of(replace(device, link=None, cc="1.0"))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"gbs": 3}, "does not have the figures gpus, gbs"),
        (FINE | {"gbs": -1}, "link.gbs = -1 is absurd"),
        (FINE | {"latency_s": "x"}, "link.latency_s = 'x' is absurd"),
        (FINE | {"gpus": True}, "link.gpus = True is absurd"),
        ("fast", "does not have the figures"),
    ],
)
def test_absurd_links(table: Any, says: str) -> None:
    text = (ROOT / "sparsegen" / "cost" / "profiles" / "h100.toml").read_text(encoding="utf-8")
    with pytest.raises(sg.DeviceError, match=says) as caught:
        profile_from({**tomllib.loads(text), "link": table}, "mine.toml")
    assert caught.value.hint


def test_the_tables_of_the_suite() -> None:
    strong = Row(part="strong", case="Heat-2D", shape=(8, 8), dtype="f64", ranks=2, steps=4, overlap=True, speedup=1.9,
                 predicted=1.95, target=1.85, busy_s=9.6, median_s=5.0, schedule="direct", ok=True)  # fmt: skip
    link = Row(part="link", case="both ways", shape=(1,), dtype="u8", ranks=2, gbs=300.0, latency_s=1e-5, ok=True)
    layer = Row(part="products", case="row-parallel", shape=(8, 4), dtype="f16", ranks=2, tokens=16, alone_s=8e-5,
                median_s=5e-5, speedup=1.6, target=1.6, error=0.0005, schedule="bitmap", ok=True)  # fmt: skip
    found = {"rows": [row.as_json() for row in (strong, link, layer)]}
    assert [view(name, found)[1:] for name in PARTS] == [
        [["Heat-2D", "8×8", "f64", "2", "yes", "4", "1.90", "1.85", "1.92", "1.95", "`direct`"]], [],
        [["both ways", "300", "1.0e-05"]],
        [["row-parallel", "8×4", "16", "2", "80.0", "50.0", "1.60", "1.6", "5.0e-04", "`bitmap`"]],
    ]  # fmt: skip


@pytest.mark.parametrize("module", ["distributed_run", "split_run"])
def test_the_suite_says_how_it_is_started(module: str) -> None:
    command = [sys.executable, "-m", f"sparsegen.bench.{module}", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "--out FILE.json" in done.stdout
