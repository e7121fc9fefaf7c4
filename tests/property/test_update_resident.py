"""General updates whose fields stay in registers: the reference's numbers after any number of steps."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, note
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.calls.update import with_steps
from sparsegen.cost.update_resident import numbers
from sparsegen.cost.update_windows import reach
from sparsegen.dsl.update import Update
from sparsegen.families.update.base import family
from sparsegen.ir.numbers.held import Held, spread
from sparsegen.pipelines import lower
from sparsegen.problems.update import UpdateProblem
from sparsegen.schedule import UpdateSchedule
from sparsegen.sizes import ITEMSIZE
from tests.updates import (
    H200,
    NAMED,
    TOLERANCE,
    arrays,
    emulated_pass,
    error,
    made,
    random_update,
    reads_back,
    reference_pass,
    wider,
)

UPDATES = st.integers(0, 2**32 - 1).map(random_update)
BOUNDARIES = [
    sg.periodic, sg.frozen, sg.neumann, sg.dirichlet(0.25), {0: sg.periodic, 1: sg.frozen},
    {0: (sg.neumann, sg.dirichlet(0.5)), 1: sg.periodic},
    {0: (sg.frozen, sg.neumann), 1: (sg.dirichlet(-1.0), sg.dirichlet(2.0))},
]  # fmt: skip
DEEP_BOUNDARIES = [
    sg.periodic, sg.frozen, sg.neumann, sg.dirichlet(0.25), {0: sg.frozen, 1: sg.periodic, 2: sg.periodic},
    {0: sg.periodic, 1: (sg.neumann, sg.dirichlet(0.5)), 2: sg.frozen},
    {0: (sg.dirichlet(-1.0), sg.neumann), 1: (sg.dirichlet(0.5), sg.frozen), 2: (sg.dirichlet(2.0), sg.neumann)},
]  # fmt: skip
SCHEDULE = "resident tiles=2x2 rows=5 cols=2 warps=5 every=2"
DEEP = "resident tiles=2x2x2 planes=9 rows=3 cols=1 warps=4 every=2"


def after(
    update: Update, shape: tuple[int, ...], s: UpdateSchedule, steps: int, *, seed: int = 0, pitch: Any = None,
    calls: int = 1,
) -> None:  # fmt: skip
    """Calls one after the other make what the reference makes of their steps; the emulator has nothing to say."""
    program = lower(UpdateProblem(update, shape), s, H200, steps, pitch)
    kept: dict[str, Any] = {}
    for call in range(calls):
        found = arrays(update, shape, seed + call)
        got, wrong = emulated_pass(update, program, found, pitch, seed + call, kept)
        assert not wrong
        want = reference_pass(update, found, steps)
        assert got.keys() == want.keys()
        for key, a in got.items():
            assert error(a, want[key]) <= steps * TOLERANCE[update.dtype], key


def drawn(update: Update, draw: random.Random) -> tuple[tuple[int, ...], UpdateSchedule]:
    """A shape and a schedule that can run there; the example is given up where they cannot."""
    most, ndim = (1, 3, 2)[update.ndim - 1], update.ndim
    s = UpdateSchedule(
        "resident", tiles=tuple(draw.randint(1, 6 if ndim == 1 else most) for _ in range(ndim)),
        cols=draw.choice((2, 3)), planes=draw.choice((4, 5, 7)) if ndim > 2 else 1,
        rows=draw.choice((2, 3, 5)) if ndim > 1 else 1, warps=draw.choice((2, 4, 6)) if ndim > 1 else 1,
        every=draw.choice((1, 1, 2, 3)),
    )  # fmt: skip
    windows = (s.planes, s.rows * s.warps, 32 * s.cols)[-ndim:]

    def cells(axis: int) -> int:
        size, halo = windows[axis], s.every * reach(update)[axis - ndim]
        count, wraps = s.tiles[axis], update.sides[0][axis][0].kind == "periodic"
        if wraps and count == 1 and draw.random() < 0.5:
            return size  # the window's ends are neighbours
        ends = 0 if wraps else {1: 2, 2: 1}.get(count, 0)  # halos that a window at an end does without
        most = count * (size - (2 - ends) * halo)
        return draw.randint(min(most, update.extents[axis] if wraps else size), most) if most >= count else count

    shape = tuple(map(cells, range(ndim)))
    assume(all(n >= least for n, least in zip(shape, update.extents, strict=True)))
    assume(family(s).misfit(update, shape, s, H200) is None)
    return shape, s


# ---------------------------------------------------------------------------------------------------- numbers
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
@pytest.mark.parametrize("name", ["wave", "gray_scott", "life"])
def test_named_cases(name: str, boundary: Any, dtype: str) -> None:
    update = NAMED[name][0](boundary=boundary, dtype=dtype)
    after(update, (37, 70), UpdateSchedule.parse(SCHEDULE), 5, seed=3)


@pytest.mark.parametrize("dtype", ["f64", "f16"])
@pytest.mark.parametrize("boundary", DEEP_BOUNDARIES, ids=str)
def test_three_axes(boundary: Any, dtype: str) -> None:
    after(NAMED["heat"][0](boundary=boundary, dtype=dtype), (9, 12, 40), UpdateSchedule.parse(DEEP), 5, seed=3)


def test_all_neighbours_on_three_axes() -> None:
    """Edges and corners of halos count, and past two ends at once the slower axis does."""

    def around(u: Any) -> Any:
        cells = [u[z, y, x] * (1 + z + 3 * y + 9 * x) for z in (-1, 0, 1) for y in (-1, 0, 1) for x in (-1, 0, 1)]
        return 0.03 * sum(cells[1:], cells[0]) + 0.05 * u[0, 0, 0] ** 2

    for boundary in DEEP_BOUNDARIES:
        after(made(around, boundary=boundary), (9, 12, 40), UpdateSchedule.parse(DEEP), 3)


@pytest.mark.parametrize("boundary", BOUNDARIES[:4], ids=str)
def test_one_axis(boundary: Any) -> None:
    line = UpdateSchedule.parse("resident tiles=5 cols=2 every=3")
    after(NAMED["burgers"][0](boundary=boundary), (271,), line, 7)


@pytest.mark.parametrize(
    ("name", "shape", "line"),
    [
        ("heat", (9, 12, 32), "tiles=2x2x1 planes=7 rows=2 warps=4 every=1"),
        ("heat", (5, 8, 64), "tiles=1x1x1 planes=5 rows=2 warps=4 every=1"),
        ("wave", (12, 64), "tiles=1x1 rows=3 cols=2 warps=4 every=2"),
        ("wave", (12, 50), "tiles=1x2 rows=3 cols=2 warps=4 every=2"),
        ("burgers", (96,), "tiles=1 cols=3 every=4"),
    ],
)
def test_axes_of_which_one_window_is_all(name: str, shape: tuple[int, ...], line: str) -> None:
    """The ends of such a window are neighbours, and no other block has cells of it that it needs."""
    after(NAMED[name][0](), shape, UpdateSchedule.parse(f"resident {line}"), 5)


@pytest.mark.parametrize(("dtype", "cols", "own", "beside"), [
    ("f32", 1, 0, True), ("f32", 2, 1, False), ("f32", 3, 1, False), ("f32", 4, 1, True), ("f32", 5, 2, False),
    ("f64", 1, 1, False), ("f64", 2, 1, True), ("f16", 4, 1, True),
])  # fmt: skip
def test_lines_travel_as_records(dtype: str, cols: int, own: int, beside: bool) -> None:
    """Three words and a tag, of one lane or, where a word is left over, of three."""
    update, shape = NAMED["heat"][0](dtype=dtype), (9, 12, 32 * cols)
    s = UpdateSchedule.parse(f"resident tiles=2x2x1 planes=7 rows=2 cols={cols} warps=4 every=1")
    held = numbers(update, shape, s)
    assert held.by(1, ITEMSIZE[dtype]) == "lines"
    records = held.records(1, ITEMSIZE[dtype])
    assert (records.own, records.beside) == (own, beside)
    after(update, shape, s, 3)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_records_have_words_of_all_levels(dtype: str) -> None:
    def wave(u: sg.Field(levels=2)) -> Any:  # type: ignore[valid-type]
        around = u[0, 0, 1] + u[0, 1, 0] + u[1, 0, 0] + u[0, 0, -1] + u[0, -1, 0] + u[-1, 0, 0]  # type: ignore[index]
        return 0.12 * around + 0.2 * u.prev[0, 0, 0]

    update = made(wave, dtype=dtype)
    s = UpdateSchedule.parse("resident tiles=2x2x1 planes=7 rows=2 cols=1 warps=4 every=1")
    assert numbers(update, (9, 12, 32), s).by(2, ITEMSIZE[dtype]) == "lines"
    after(update, (9, 12, 32), s, 4)


@given(update=UPDATES, seed=st.integers(0, 2**32 - 1))
def test_random_updates(update: Update, seed: int) -> None:
    draw = random.Random(seed)
    shape, s = drawn(update, draw)
    note(f"{update} on {shape}: {s}\n{update.code}")
    after(update, shape, s, draw.randint(1, 5), seed=seed % 100)


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
def test_any_number_of_steps(steps: int) -> None:
    after(NAMED["wave"][0](), (37, 70), UpdateSchedule.parse(SCHEDULE), steps)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("steps", [1, 4, 5])
def test_a_launch_takes_no_cell_of_the_one_before(steps: int, seed: int) -> None:
    """The tags go on from launch to launch, whether rounds are odd or even."""
    after(NAMED["wave"][0](), (37, 70), UpdateSchedule.parse(SCHEDULE), steps, seed=seed, calls=3)


def test_nine_blocks_in_many_orders() -> None:
    line = UpdateSchedule.parse("resident tiles=3x3 rows=3 cols=2 warps=7 every=3")
    for seed in range(6):
        after(NAMED["gray_scott"][0](dtype="f32"), (40, 75), line, 7, seed=seed)


def test_one_block_gives_cells_to_itself() -> None:
    after(NAMED["wave"][0](), (9, 20), UpdateSchedule.parse("resident tiles=1x1 rows=3 cols=1 warps=5 every=2"), 5)


def test_one_block_that_has_no_halo() -> None:
    update = NAMED["wave"][0](boundary=sg.neumann)
    after(update, (12, 64), UpdateSchedule.parse("resident tiles=1x1 rows=3 cols=2 warps=4 every=8"), 5)


def test_rows_may_lie_apart() -> None:
    update = NAMED["wave"][0]()
    after(update, (37, 70), UpdateSchedule.parse(SCHEDULE), 3, pitch=wider(update, (37, 70), (1, 2, 3, 4, 5)))


def test_coefficients_that_are_read_farther_than_fields() -> None:
    def spread(u: Any, c: sg.Coef) -> Any:
        return 0.5 * u[0, 0] + 0.25 * (c[-2, 0] * u[0, -1] + c[2, -2] * u[0, 1])  # type: ignore[index]

    for boundary in BOUNDARIES:
        after(
            made(spread, boundary=boundary), (37, 70), UpdateSchedule.parse(SCHEDULE.replace("every=2", "every=1")), 3
        )


def test_four_levels_and_a_formula_without_neighbours() -> None:
    def four(u: sg.Field(levels=4)) -> Any:  # type: ignore[valid-type]
        return 0.5 * u[0, 0] + 0.125 * u.prev[1, 0] + 0.25 * u.prev.prev[0, -1] - 0.125 * u.prev.prev.prev[0, 0]

    def alone(u: Any) -> Any:
        return u[0, 0] / (1 + u[0, 0] ** 2)

    s = UpdateSchedule.parse(SCHEDULE)
    for steps in (1, 3, 6):
        after(made(four, boundary=sg.dirichlet(0.5)), (37, 70), s, steps)
    after(made(alone), (37, 70), s, 4)


# ---------------------------------------------------------------------------------------------------- programs
@pytest.mark.parametrize("name", ["wave", "gray_scott"])
def test_text_round_trip(name: str) -> None:
    reads_back(NAMED[name][0](boundary=sg.dirichlet(0.5)), (37, 70), UpdateSchedule.parse(SCHEDULE))


def test_other_steps_are_the_same_program() -> None:
    program = lower(UpdateProblem(NAMED["wave"][0](), (37, 70)), UpdateSchedule.parse(SCHEDULE), H200, 1)
    other = with_steps(program, 900)
    assert other.steps == 900
    assert other.warp.funcs == program.warp.funcs
    assert {n for n, a in other.warp.constants.items() if not np.array_equal(a, program.warp.constants[n])} == {
        "wave.steps"
    }


def test_calls() -> None:
    update = NAMED["wave"][0](boundary=sg.frozen)
    k = sg.compile(update, (37, 70), steps=5, device="h200", backend="emulator", schedule=SCHEDULE)
    found = arrays(update, (37, 70))
    for steps in (5, 1, 12):
        got = k(**found, steps=steps)
        for level, want in enumerate(reference_pass(update, found, steps).values()):
            assert error(got[level], want) <= 1e-12
    assert k.check(**found).ok
    assert k.counts()["st.tagged"] > 0
    assert "resident tiles=2x2" in str(k.explain())


def test_auto_fills_the_words_in() -> None:
    update = NAMED["wave"][0]()
    k = sg.compile(update, (512, 512), steps=1000, device="h200", backend="emulator", schedule="resident every=4")
    s = k.cost.schedule
    assert s.complete
    assert s.every == 4
    assert 0.75 * H200.sms <= s.tiles[0] * s.tiles[1] <= H200.sms
    assert (
        k.cost.time * 3
        > sg.compile(
            update, (512, 512), steps=3000, device="h200", backend="emulator", schedule=k.cost.schedule
        ).cost.time
        > k.cost.time * 2.5
    )


@pytest.mark.parametrize(
    ("name", "shape", "line", "what"),
    [
        ("heat", (8, 8, 32), "resident tiles=2x2", "tiles=2x2 of fields of 3 axes"),
        ("wave", (37, 70), "resident planes=2", "planes=2 of fields of 2 axes"),
        ("wave", (4096, 4096), "resident", "fields and levels take 402653184 bytes"),
        ("wave", (37, 70), "resident tiles=1x1 rows=5 cols=2 warps=5 every=2", "37 rows of a block and a halo of 2"),
        ("wave", (37, 70), "resident tiles=2x2 rows=1 cols=2 warps=5 every=2", "of a block and a halo of"),
        ("wave", (700, 700), "resident tiles=20x20 rows=8 cols=2 warps=5 every=2", "400 blocks that run together"),
        ("wave", (300, 2100), "resident tiles=2x10 rows=32 cols=8 warps=5 every=2", "registers a thread"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, shape: tuple[int, ...], line: str, what: str) -> None:
    with pytest.raises(sg.ScheduleError, match=what) as refused:
        sg.compile(NAMED[name][0](), shape, steps=10, device="h200", backend="emulator", schedule=line)
    assert refused.value.hint


def test_rows_that_warps_show_one_another_may_take_too_much() -> None:
    def star(u: Any) -> Any:
        return sum(0.05 * (u[d, 0] + u[0, d] + u[-d, 0] + u[0, -d]) for d in range(1, 5)) + 0.2 * u[0, 0] ** 2

    line = "resident tiles=2x2 rows=4 cols=4 warps=12 every=1"
    with pytest.raises(sg.ScheduleError, match="bytes of shared memory"):
        sg.compile(made(star), (80, 240), device="h200", backend="emulator", schedule=line)


# ---------------------------------------------------------------------------------------------------- who has what
@st.composite
def holdings(draw: st.DrawFn) -> Held:
    """Numbers of a field that blocks can hold."""
    every, share, warps = draw(st.integers(1, 3)), (draw(st.sampled_from([1, 5])), 4, 2), 6

    def axis(size: int, most: int) -> tuple[int, int, int, bool]:
        wraps, reach, count = draw(st.booleans()), draw(st.integers(0, most)), draw(st.integers(1, 4))
        ends = 0 if wraps else {1: 2, 2: 1}.get(count, 0)
        least, limit = max(count, 0 if wraps else size), count * (size - (2 - ends) * every * reach)
        if limit < least or draw(st.integers(0, 3)) == 0:
            return size, 1, reach if wraps else 0, wraps
        return draw(st.integers(least, limit)), count, reach, wraps

    sizes = share[0], warps * share[1], 32 * share[2]
    (nz, tz, rz, wz), (ny, ty, ry, wy), (nx, tx, rx, wx) = map(axis, sizes, (min(1, share[0] - 1), 2, 2))
    box = draw(st.booleans())  # or a star
    reads = [(rz, ry, rx)] if box else [(rz, 0, 0), (0, ry, 0), (0, 0, rx)]
    held = Held((nz, ny, nx), (tz, ty, tx), share, warps, every, spread(reads), (wz, wy, wx))
    assert held.legal() is None
    return held


@given(holdings())
def test_every_cell_has_an_owner_and_every_halo_a_giver(held: Held) -> None:
    shape = held.shape
    owner = np.full(held.cells, -1)
    for block, facts in enumerate(held.facts.reshape(-1, 4, 3).tolist()):
        each = [
            (np.arange(low, high) + first) % n for first, _, low, high, n in zip(*facts, shape, strict=True)
        ]  # fmt: skip
        assert all(at[0] == own for at, own in zip(each, facts[1], strict=True))
        own = np.ravel_multi_index(np.meshgrid(*each, indexing="ij"), shape).reshape(-1)
        assert (owner[own] < 0).all()
        owner[own] = block
    assert (owner >= 0).all()
    given = [set(cells[cells >= 0].tolist()) for cells in held.given[:, :, 0]]
    readers: dict[int, set[int]] = {block: set() for block in range(held.blocks)}
    for block, taken in enumerate(held.taken):
        for cell in taken[taken[:, 0] >= 0, 0].tolist():
            assert cell in given[owner[cell]]
            readers[int(owner[cell])].add(block)
    for block, others in readers.items():  # whom a block waits for waits for it: else it could overtake them
        assert all(block in readers[other] for other in others)


@given(holdings())
def test_planes_that_no_step_makes_are_of_no_use_after_one(held: Held) -> None:
    low, high = held.made
    far = (held.every - 1) * held.reach[0]
    for span in held.spans(0):
        begin, end = held.inside(0, span)
        counts = (max(0, begin - far), min(held.window[0], end + far))
        assert low <= counts[0] < counts[1] <= high


@example(
    Held(shape=(1, 24, 64), tiles=(1, 4, 1), share=(1, 4, 2), warps=6, every=3, reads=frozenset({(0, 0, 0), (0, 1, 0)}),
         wraps=(False, False, True))  # a warp gives lines at both ends of its block
)  # fmt: skip
@example(
    Held(shape=(1, 1, 64), tiles=(1, 1, 1), share=(1, 4, 2), warps=6, every=1, reads=frozenset({(0, 0, 0), (0, 1, 0)}),
         wraps=(False, True, True))  # a warp takes lines beyond both
)  # fmt: skip
@given(holdings())
def test_no_warp_exchanges_more_lines_than_one_at_the_edge(held: Held) -> None:
    (nz, ny, _), (tz, ty, _), (wz, wy, _) = held.shape, held.tiles, held.wraps
    held = dataclasses.replace(held, shape=(nz, ny, held.window[2]), tiles=(tz, ty, 1), wraps=(wz, wy, True))
    given, taken = held.swapped_lines
    per_warp = np.unpackbits(held.line_bits.view(np.uint8), axis=-1).sum(-1).max((0, 1))
    assert all(most <= bound for most, bound in zip(per_warp, held.edge_lines, strict=True))
    assert per_warp[0] <= len(given) and per_warp[1] <= len(taken)
