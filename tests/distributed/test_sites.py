"""Sources and receivers over a mesh: every rank has the records of one GPU, and the fields are its, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.distributed import local
from sparsegen.distributed.model import planned, predicted
from sparsegen.distributed.sites import seen
from tests.distributed.ranks import blocks, flat, over

H100 = load_profile("h100")
ENDS = [sg.periodic, sg.dirichlet(0.5), sg.neumann, sg.frozen]
SHAPES = {1: (300,), 2: (47, 70), 3: (17, 20, 40)}
#: A schedule of one step a pass, and some of several.
SCHEDULES = {
    1: ("direct", "stream levels=3 cols=4 rows=1"),
    2: ("direct block=32x8 column=2", "stream levels=3 cols=4", "tiled levels=2 rows=2 cols=1"),
    3: ("column levels=1 lines=1", "column levels=2 lines=2 warps=8 planes=10"),
}
Array = Any


def two(axes: int, boundary: Any, dtype: str = "f64") -> Any:
    """Two fields, one of two time levels, that drive one another."""
    here = (0,) * axes
    ends = [tuple(s * (i == axis) for i in range(axes)) for axis in range(axes) for s in (-1, 1)]

    @sg.stencil(boundary=boundary, dtype=dtype)
    def two(u: sg.Field, v: sg.Field(levels=2), dt: sg.Scalar) -> Any:  # type: ignore[valid-type]
        now: Any = v
        near, around = (sum(f[end] for end in ends) - len(ends) * f[here] for f in (u, now))
        return u[here] + dt * near + 0.1 * now[here], 1.9 * now[here] - 0.95 * now.prev[here] + dt * around * u[here]

    return two


def seams(shape: tuple[int, ...], wraps: bool) -> tuple[Array, Array]:
    """Points beside and between the blocks of two or three ranks on each of the first axes, and at the edges."""
    middle = np.array([n / 2.37 for n in shape])
    found = [middle, np.zeros(len(shape)), np.array(shape) - (0.25 if wraps else 1.0)]
    for axis, n in enumerate(shape[:2]):
        for seam in {n // 2, n // 3, 2 * n // 3}:
            for off in (-2.0, -1.0, -0.5, -0.3, 0.0, 0.75, 1.5):
                point = middle.copy()
                point[axis] = seam + off
                found.append(point)
    corner = middle.copy()
    corner[:2] = [n // 2 - 0.4 for n in shape[:2]]
    points = np.array([*found, corner])
    return points[::2], points


def surveyed(update: Any, sources: Array, receivers: Array) -> Any:
    """Sources of v, receivers of both, one group in whole cells."""
    return update.with_sites(
        shot=sg.Source(sources, field="v"), bang=sg.Source(sources[-1:], field="u"), a=sg.Receiver(receivers, "u"),
        b=sg.Receiver(receivers[::-1], "v"), c=sg.Receiver(np.floor(receivers[:3]), "u"),
    )  # fmt: skip


def inputs(k: sg.Kernel, steps: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    made = {name: a for name, a in k.random(seed).items() if name not in ("shot", "bang")}
    wide = np.float64 if k.dtype == np.float64 else np.float32
    counts = {group.name: len(group.points) for group in k.problem.what.sources}
    return {**made, "dt": 0.05, **{name: rng.normal(0, 0.2, (steps, n)).astype(wide) for name, n in counts.items()}}


def same(
    k: sg.Kernel, mesh: tuple[int, ...], given: dict[str, Any], steps: int | None = None, overlap: bool | None = None
) -> None:
    """Every rank has the records of one process; its block has the numbers that lie there."""
    fields, *records = k(**given, steps=steps)

    def one(d: Any) -> None:
        own, *heard = d(**blocks(d, given), steps=steps)
        for a, b in zip(flat(own), flat(fields), strict=True):
            np.testing.assert_array_equal(a, b[d.block])
        for a, b in zip(heard, records, strict=True):
            assert type(a) is type(b) and a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)

    over(k, mesh, one, overlap)


@pytest.mark.parametrize(
    ("axes", "boundary"), [*((axes, ends) for axes in (1, 2) for ends in ENDS), (3, sg.periodic), (3, sg.frozen)]
)
def test_every_schedule_of_the_emulator(axes: int, boundary: Any) -> None:
    sources, receivers = seams(SHAPES[axes], boundary is sg.periodic)
    update = surveyed(two(axes, boundary), sources, receivers)
    for line in SCHEDULES[axes]:
        k = sg.compile(update, SHAPES[axes], 5, "h100", "emulator", schedule=line)
        same(k, (2,), inputs(k, 5), overlap="levels=3" in line)


@pytest.mark.parametrize("mesh", [(1,), (2,), (3,), (1, 2), (2, 2), (3, 2)], ids=str)
@pytest.mark.parametrize("boundary", ENDS, ids=str)
def test_meshes(boundary: Any, mesh: tuple[int, ...]) -> None:
    """Uneven splits; a call of more steps than passes have, and of fewer."""
    sources, receivers = seams(SHAPES[2], boundary is sg.periodic)
    k = sg.compile(
        surveyed(two(2, boundary), sources, receivers), SHAPES[2], 7, backend="reference", schedule="stream levels=3"
    )
    for steps, overlap in ((7, False), (2, True)):
        same(k, mesh, inputs(k, steps), steps, overlap)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_narrow_fields(dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    sources, receivers = seams(SHAPES[2], False)
    for backend, line in (("reference", "direct"), ("emulator", "tiled levels=2 rows=2")):
        update = surveyed(two(2, sg.neumann, dtype), sources, receivers)
        k = sg.compile(update, SHAPES[2], 4, "h100", backend, schedule=line)
        same(k, (2,), inputs(k, 4))


@settings(deadline=None, max_examples=10)
@given(st.data())
def test_random_sites(data: Any) -> None:
    boundary = data.draw(st.sampled_from([sg.periodic, sg.neumann, sg.frozen]))
    shape = data.draw(st.tuples(st.integers(42, 60), st.integers(64, 80)))
    mesh, steps = data.draw(st.sampled_from([(2,), (3,), (1, 2), (2, 2)])), data.draw(st.integers(1, 6))
    place = st.tuples(*(st.one_of(st.integers(0, n - 1), st.floats(0, n - 1)) for n in shape))
    sources, receivers = (data.draw(st.lists(place, min_size=1, max_size=5)) for _ in range(2))
    line = data.draw(st.sampled_from(["direct", "stream levels=2 cols=4", "tiled levels=3 rows=4 cols=1 warps=2"]))
    backend = data.draw(st.sampled_from(["reference"] * 4 + ["emulator"]))
    update = two(2, boundary).with_sites(shot=sg.Source(sources, field="u"), seen=sg.Receiver(receivers, field="v"))
    k = sg.compile(update, shape, max(steps, 3), "h100", backend, schedule=line)
    same(k, mesh, inputs(k, steps, steps), steps, data.draw(st.booleans()))


def test_a_halo_goes_around_the_domain() -> None:
    """Frames that have some cells of a periodic domain twice."""
    points = np.array([[0.5, 3.0], [7.25, 8.5], [15.75, 9.0], [16.0, 1.5]])
    update = surveyed(two(2, sg.periodic), points, points)
    for mesh in ((2,), (2, 2)):
        k = sg.compile(update, (16, 18), 14, backend="reference", schedule="stream levels=7 cols=2")
        same(k, mesh, inputs(k, 14))


def test_halos_are_one_wider_for_receivers_between_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver on the seam sees a cell of the neighbour's: without a wider halo it is wrong where a pass ends."""
    update = two(2, sg.neumann)
    sources, on_seam = np.array([[30.5, 20.0]]), np.array([[19.5, 30.0]])

    def kernel(**sites: Any) -> sg.Kernel:
        whole = update.with_sites(shot=sg.Source(sources, field="v"), **sites)
        return sg.compile(whole, (40, 70), 6, backend="reference", schedule="stream levels=3")

    k = kernel(seen=sg.Receiver(on_seam, "v"))
    assert planned(k, (2,), False)[1].halo == (4, 3)
    assert planned(kernel(seen=sg.Receiver(np.floor(on_seam), "v")), (2,), False)[1].halo == (3, 3)
    assert planned(kernel(), (2,), False)[1].halo == (3, 3)  # sources need none
    same(k, (2,), inputs(k, 6))
    monkeypatch.setattr(local, "beyond", lambda problem: (0, 0))
    with pytest.raises(AssertionError, match="not equal"):
        same(k, (2,), inputs(k, 6))


def test_pieces_have_the_sites_of_their_frames() -> None:
    """Some have none; a source in a halo is two pieces', a receiver is one's."""
    update = two(2, sg.neumann).with_sites(
        shot=sg.Source([[1.5, 8.0], [19.5, 30.0]], field="u"), heard=sg.Receiver([[19.5, 9.0], [2.0, 3.0]], "v")
    )
    k = sg.compile(update, (60, 70), 6, backend="reference", schedule="stream levels=2")
    _, partition = planned(k, (3,), False)
    which = [
        {name: numbers.tolist() for name, numbers in seen(k.problem, partition, piece).which.items()}
        for piece in partition.pieces
    ]
    assert which == [{"shot": [0, 1], "heard": [0, 1]}, {"shot": [1]}, {}]
    same(k, (3,), inputs(k, 6))


def test_signals_of_the_sources_and_an_out() -> None:
    """A signal that the source has, the same for all points; records go to arrays that are given."""
    points = [[19.5, 8.0], [20.5, 30.0]]
    update = two(2, sg.neumann).with_sites(
        shot=sg.Source(points, np.sin(np.arange(5.0)), "u"), heard=sg.Receiver(points, "v")
    )
    k = sg.compile(update, (40, 70), 5, backend="reference")
    plain = {name: a for name, a in inputs(k, 5).items() if name != "shot"}
    same(k, (2,), plain)
    want = k(**plain)[1]

    def one(d: Any) -> None:
        mine = blocks(d, plain)
        out = ((np.empty(d.block_shape), (np.empty(d.block_shape), np.empty(d.block_shape))), np.full((5, 2), np.nan))
        assert d(**mine, out=out) is out and np.array_equal(out[1], want)
        with pytest.raises(sg.ArrayError, match=r"shot has shape \[4, 2\]"):
            d(**mine, shot=np.zeros((4, 2)))
        with pytest.raises(sg.ArrayError, match="out is not of 2 parts"):
            d(**mine, out=(*out, out[1]))

    over(k, (2,), one)


def test_runs_have_records_and_go_on_from_checkpoints(tmp_path: Path) -> None:
    sources, receivers = seams((40, 70), False)
    update = surveyed(two(2, sg.neumann), sources, receivers)
    k = sg.compile(update, (40, 70), 3, "h100", "emulator", schedule="stream levels=3 cols=4")
    whole, file = inputs(k, 11), tmp_path / "run.npz"
    want = list(k.run(**whole, steps=11, every=4, progress=False))

    def one(d: Any, **more: Any) -> list[Any]:
        return [(f.step, f.records, f["u"], d.block) for f in d.run(**blocks(d, whole), steps=11, every=4, **more)]

    def compare(ranks: list[Any], frames: list[Any]) -> None:
        for found in ranks:
            assert [step for step, *_ in found] == [frame.step for frame in frames]
            for (_, records, u, block), frame in zip(found, frames, strict=True):
                np.testing.assert_array_equal(u, frame["u"][block])
                assert records.keys() == frame.records.keys() == {"a", "b", "c"}
                for name, a in records.items():
                    np.testing.assert_array_equal(a, frame.records[name])

    compare(over(k, (2,), one), want)
    made = k.run(**whole, steps=11, every=4, checkpoint=file, progress=False)
    assert [next(made).step for _ in range(2)] == [4, 8]  # and a checkpoint of step 4
    made.close()
    kept = file.read_bytes()
    alone = list(k.run(**whole, steps=11, every=4, checkpoint=file, resume=True, progress=False))
    file.write_bytes(kept)
    compare(over(k, (1, 2), lambda d: one(d, checkpoint=file, resume=True)), alone)


def test_ranks_with_other_points_are_told() -> None:
    update = two(2, sg.neumann)
    found = [
        sg.compile(update.with_sites(seen=sg.Receiver([[3.0, x]], "u")), (40, 70), 2, backend="reference")
        for x in (1.0, 2.0)
    ]

    def one(d: Any) -> None:
        d.kernel = found[d._ranks.me]
        with pytest.raises(sg.DeviceError, match="another kernel than rank"):
            d._ranks.agree(d._facts(None))

    over(found[0], (2,), one)


def test_what_is_predicted_of_sites() -> None:
    """The piece that has most to do at sites says how long a turn takes."""
    update = two(2, sg.neumann)
    lines = np.stack([np.linspace(5.0, 300.0, 400), np.full(400, 40.5)], axis=1)
    whole = update.with_sites(heard=sg.Receiver(lines, "v"))
    found = []
    for what in (update, whole):
        k = sg.compile(what, (1024, 512), 8, H100, "reference", schedule="stream levels=2")
        schedule, partition = planned(k, (4,), False)
        found.append(predicted(k.problem, H100, partition, schedule))
    plain, more = found
    assert more.work[0] > plain.work[0] and more.alone > plain.alone and more.time > plain.time
    few = sg.compile(update.with_sites(heard=sg.Receiver(lines[:1], "v")), (40, 370), 2, H100, "reference")
    schedule, partition = planned(few, (2,), False)
    assert few.schedule.family == "resident" != schedule.family
    assert "work" in str(predicted(few.problem, H100, partition, schedule))
