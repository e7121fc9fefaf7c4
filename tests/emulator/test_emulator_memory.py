"""Loads, stores, atomics: bounds, alignment, uninitialised elements, exact counts, sectors, bank conflicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator_kit import clean, faulty, glob, kernel, shared, zeros
from hypothesis import given
from hypothesis import strategies as st

from sparsegen.backends.emulator import ALL, run
from sparsegen.backends.emulator.counts import OFF, Patterns
from sparsegen.ir.errors import ArrayError, KernelFault, Loc, ScheduleError
from sparsegen.ir.types import Buffer, f16, f32, f64, s32, u8, u32


# ------------------------------------------------------------------------------------------------ values
@pytest.mark.parametrize(("dtype", "width"), [(f64, 1), (f64, 2), (f32, 4), (f16, 2), (f16, 8), (u8, 4), (u32, 2)])
def test_vector_access_in_every_space(dtype: Any, width: int) -> None:
    src, dst, tile = glob("src", dtype, 32 * width), glob("dst", dtype, 32 * width), shared("tile", dtype, 32 * width)

    def body(b: Any, v: Any) -> None:
        r = b.alloc("r", dtype, width)
        b.st(tile, v.lane * width, *b.ldv(src, v.lane * width, width))
        b.st(r, 0, *b.ldv(tile, v.lane * width, width))
        b.st(dst, v.lane * width, *b.ldv(r, 0, width))

    data = np.random.default_rng(1).integers(0, 200, 32 * width).astype(dtype.numpy())
    args, rep = clean(kernel(body, (src, dst), (tile,)), {"src": data})
    assert (args["dst"] == data).all()
    n = 32 * width * dtype.nbytes
    assert rep.counts["bytes.global.read"] == rep.counts["bytes.shared.write"] == rep.counts["bytes.shared.read"] == n
    assert rep.counts["sectors.global.read"] == rep.counts["sectors.global.write"] == -(-n // 32)
    assert rep.degree == 1


def test_predicated_load_gives_other_and_touches_nothing() -> None:
    src, dst = glob("src", f64, 8), glob("dst", f64, 32)

    def body(b: Any, v: Any) -> None:
        b.st(dst, v.lane, b.ld(src, v.lane - 4, where=v.lane.ge(4) & v.lane.lt(12), other=-7.0))

    def whole(b: Any, v: Any) -> None:
        b.st(dst, v.lane, b.ld(src, v.lane - 4))

    data = np.arange(8.0)
    args, rep = clean(kernel(body, (src, dst)), {"src": data})
    assert args["dst"].tolist() == [-7.0] * 4 + list(data) + [-7.0] * 20
    assert rep.counts["bytes.global.read"] == 64
    r = faulty(kernel(whole, (src, dst)), "bounds", "where", {"src": data})
    e = r.errors[0]
    assert (e.index, e.lane, e.times, e.buffer) == (-4, 0, 24, "src")
    assert "-4" in e.message and "0..7" in e.message


@pytest.mark.parametrize("space", ["shared", "reg", "global"])
def test_stores_out_of_bounds(space: str) -> None:
    buf = {"shared": shared("t", f64, 16), "global": glob("t", f64, 16)}.get(space)

    def body(b: Any, v: Any) -> None:
        t = buf or b.alloc("t", f64, 16)
        b.st(t, v.lane, b.const(f64, 1.0))

    f = kernel(body, (buf,) if space == "global" else (), (buf,) if space == "shared" else ())
    r = faulty(f, "bounds", "where")
    assert r.errors[0].index == 16 and r.errors[0].times == 16


def test_misaligned_vectors() -> None:
    src, dst = glob("src", f64, 66), glob("dst", f64, 64)

    def make(shift: int) -> Any:
        return kernel(lambda b, v: b.st(dst, v.lane * 2, *b.ldv(src, v.lane * 2 + shift, 2)), (src, dst))

    clean(make(0))
    clean(make(2))
    assert "16 bytes" in faulty(make(1), "bounds", "pitch").errors[0].message
    faulty(make(0), "bounds", "align", align={"src": 8})
    low = shared("t", f64, 64, align=8)
    f = kernel(lambda b, v: b.st(low, v.lane * 2, b.const(f64, 0), b.const(f64, 0)), (), (low,))
    faulty(f, "bounds", "align the buffer")


@pytest.mark.parametrize("space", ["shared", "global"])
def test_uninitialised_reads(space: str) -> None:
    t = shared("t", f64, 32) if space == "shared" else glob("t", f64, 32)
    out = glob("out", f64, 32)

    def make(first: int) -> Any:
        def body(b: Any, v: Any) -> None:
            b.st(t, v.lane, b.const(f64, 2.0), where=v.lane.ge(first))
            b.st(out, v.lane, b.ld(t, v.lane))

        return kernel(body, (out,) if space == "shared" else (t, out), (t,) if space == "shared" else ())

    clean(make(0), uninit={"t"})
    r = faulty(make(3), "uninit", "write the element before", uninit={"t"})
    assert r.errors[0].times == 3 and r.errors[0].index == 0
    assert run(make(3), zeros(make(3)), checks=ALL - {"uninit"}, uninit={"t"}).ok


def test_registers_that_a_lane_does_not_read_need_not_be_written() -> None:
    """Half of the lanes have written one element, half the other; each reads its own."""
    out = glob("out", f64, 32)

    def make(other: int) -> Any:
        def body(b: Any, v: Any) -> None:
            r = b.alloc("r", f64, 2)
            for i in range(2):
                b.st(r, i, b.const(f64, i + 1.0), where=(v.lane // 16).eq(i))
            b.st(out, v.lane, b.ld(r, (v.lane // 16 + other) % 2))

        return kernel(body, (out,))

    args, _ = clean(make(0))
    assert args["out"].tolist() == [1.0] * 16 + [2.0] * 16
    faulty(make(1), "uninit", "initialise the register array")


def test_shared_memory_starts_as_nan() -> None:
    t, out = shared("t", f64, 32), glob("out", f64, 32)
    f = kernel(lambda b, v: b.st(out, v.lane, b.ld(t, v.lane)), (out,), (t,))
    a = zeros(f)
    run(f, a)
    assert np.isnan(a["out"]).all()


def test_a_broken_promise() -> None:
    table, out = glob("table", s32, 32), glob("out", f64, 32)

    def body(b: Any, v: Any) -> None:
        b.st(out, b.ld(table, v.lane, lo=0, hi=31, hint="at"), b.const(f64, 1.0))

    f = kernel(body, (table, out))
    clean(f, {"table": np.arange(32, dtype=np.int32)[::-1].copy()})
    bad = np.arange(32, dtype=np.int32)
    bad[9] = 40
    r = run(f, {"table": bad, "out": np.zeros(32)})
    assert r.kinds() == {"promise", "bounds"}
    assert "%at is 40" in r.errors[0].message and "0..31" in r.errors[0].message and r.errors[0].lane == 9


def test_parameters_by_value() -> None:
    par, out = Buffer("par", f64, 4, "param"), glob("out", f64, 32)

    def body(b: Any, v: Any) -> None:
        b.st(out, v.lane, b.binary("add", b.ld(par, 3), b.ld(par, v.lane % 4)))

    args, rep = clean(kernel(body, (par, out)), {"par": np.array([1.0, 2, 3, 4])})
    assert args["out"].tolist() == [4.0 + 1 + i % 4 for i in range(32)]
    assert rep.counts["ld.param"] == 2


# ------------------------------------------------------------------------------------------------ atomics
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    ("op", "start", "want"), [("add", 5, 5 + sum(range(64))), ("max", 5, 63), ("min", 5, 0), ("inc", 0, 64)]
)
@pytest.mark.parametrize("seed", [0, 3])
def test_atomics(space: str, op: str, start: int, want: int, seed: int) -> None:
    cell = glob("cell", u32, 1) if space == "global" else shared("cell", u32, 1)
    out, last = glob("out", u32, 64), glob("last", u32, 1)

    def body(b: Any, v: Any) -> None:
        if space == "shared":
            with b.if_(v.tid.eq(0)):
                b.st(cell, 0, b.binary("add", start, 0, u32))
            b.barrier()
        b.st(out, v.tid, b.atom(op, cell, 0, 1000 if op == "inc" else v.tid))
        if space == "shared":
            b.barrier()
            with b.if_(v.tid.eq(0)):
                b.st(last, 0, b.ld(cell, 0))

    params = (out, last, cell) if space == "global" else (out, last)
    f = kernel(body, params, () if space == "global" else (cell,), threads=64)
    args, rep = clean(f, {"cell": np.full(1, start, np.uint32)} if space == "global" else {}, seed=seed)
    assert (args["cell"] if space == "global" else args["last"])[0] == want
    assert rep.counts["atom"] == 2
    if op == "inc":
        assert sorted(args["out"].tolist()) == list(range(64))


def test_exch_hands_the_old_value_on() -> None:
    cell, out = glob("cell", u32, 1), glob("out", u32, 32)
    f = kernel(lambda b, v: b.st(out, v.lane, b.atom("exch", cell, 0, v.lane + 1)), (cell, out))
    args, _ = clean(f, seed=5)
    assert sorted([*args["out"].tolist(), int(args["cell"][0])]) == list(range(33))


def test_red_adds_floats() -> None:
    acc = glob("acc", f32, 4)
    f = kernel(lambda b, v: b.red("add", acc, v.tid % 4, b.const(f32, 0.5)), (acc,), threads=128, grid=(3, 1, 1))
    args, rep = clean(f)
    assert args["acc"].tolist() == [48.0] * 4
    assert rep.counts["red"] == 12


@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics_race_with_plain_accesses(space: str) -> None:
    cell = glob("cell", u32, 1) if space == "global" else shared("cell", u32, 1)
    out = glob("out", u32, 64)

    def make(ordered: bool) -> Any:
        def body(b: Any, v: Any) -> None:
            with b.if_(v.tid.eq(0)):
                b.st(cell, 0, b.binary("add", 0, 0, u32))
            b.barrier()
            b.atom("add", cell, 0, 1)
            if ordered:
                b.barrier()
            b.st(out, v.tid, b.ld(cell, 0))

        return kernel(
            body, (out, cell) if space == "global" else (out,), (cell,) if space == "shared" else (), threads=64
        )

    args, _ = clean(make(True))
    assert (args["out"] == 64).all()
    r = faulty(make(False), "global" if space == "global" else "race", "barrier")
    assert "atomic" in r.errors[0].message


# ------------------------------------------------------------------------------------------------ counts
def _waves(addr: list[int | None], nbytes: int) -> tuple[int, int, int]:
    """Wavefronts, ideal and degree of one request, written from the rule: phases, banks, distinct words."""
    per = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[nbytes]
    degrees = []
    for p in range(0, 32, per):
        banks: dict[int, set[int]] = {}
        for a in addr[p : p + per]:
            if a is not None:
                for word in range(a // 4, (a + nbytes - 1) // 4 + 1):
                    banks.setdefault(word % 32, set()).add(word)
        if banks:
            degrees.append(max(map(len, banks.values())))
    return sum(degrees), len(degrees), max(degrees, default=0)


@given(data=st.data())
def test_wavefronts_and_sectors_by_the_rule(data: st.DataObject) -> None:
    nbytes = data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    kind = data.draw(st.sampled_from(["stride", "random", "few"]))
    n = data.draw(st.integers(1, 5))
    top = {"stride": 40, "random": 4000, "few": 40}[kind]
    ix = np.array([[(lane * k if kind == "stride" else data.draw(st.integers(0, top))) + k for lane in range(32)]
                   for k in range(1, n + 1)])  # fmt: skip
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=32 * n, max_size=32 * n))).reshape(n, 32)
    mask = None if data.draw(st.booleans()) else mask
    sh, gl = Patterns(nbytes, nbytes, shared=True), Patterns(nbytes, nbytes, shared=False)
    for p in (sh, gl, sh, gl):  # the second time from the table
        p.add(ix, mask, n)
    addr = [
        [int(x) * nbytes if mask is None or mask[r, c] else None for c, x in enumerate(row)] for r, row in enumerate(ix)
    ]
    want = [_waves(a, nbytes) for a in addr]
    assert (sh.cost, sh.ideal) == (2 * sum(x[0] for x in want), 2 * sum(x[1] for x in want))
    assert sh.degree == max(x[2] for x in want)
    assert gl.cost == 2 * sum(len({a // 32 for a in row if a is not None}) for row in addr)


def test_pattern_marker_is_no_address() -> None:
    assert OFF < -(2**31) * 16


@pytest.mark.parametrize(("stride", "degree"), [(1, 1), (2, 2), (4, 4), (16, 16), (17, 1), (32, 16)])
def test_conflict_degree_of_doubles(stride: int, degree: int) -> None:
    t = shared("t", f64, 32 * 32)
    f = kernel(lambda b, v: b.st(t, v.lane * stride, b.const(f64, 0.0)), (), (t,))
    _, rep = clean(f)
    (c,) = rep.conflicts
    assert (c.degree, c.buffer, c.requests, c.extra) == (degree, "t", 1, 2 * (degree - 1))
    assert rep.counts["wavefronts.shared"] == 2 * degree


@pytest.mark.parametrize(("pitch", "degree"), [(266, 2), (268, 1)])
def test_the_papers_padding_of_fragment_loads(pitch: int, degree: int) -> None:
    """8 x 4 fragments of doubles: a row stride of 266 conflicts, 268 does not (ConvStencil's padding)."""
    t, out = shared("t", f64, 8 * pitch), glob("out", f64, 32)

    def body(b: Any, v: Any) -> None:
        with b.for_("i", v.lane, 8 * pitch, 32) as i:
            b.st(t, i, b.const(f64, 1.0))
        b.barrier()
        b.st(out, v.lane, b.ld(t, v.lane // 4 * pitch + v.lane % 4))

    _, rep = clean(kernel(body, (out,), (t,)))
    assert next(c.degree for c in rep.conflicts if c.op.startswith("warp.ld")) == degree


def test_counts_are_of_warps_with_an_active_lane() -> None:
    out = glob("out", f64, 128)

    def body(b: Any, v: Any) -> None:
        c = b.const(f64, 1.0)
        with b.if_(v.tid.lt(40)):
            b.st(out, v.tid, b.binary("add", c, c))
        b.st(out, v.tid, c, where=v.tid.ge(100))

    _, rep = clean(kernel(body, (out,), threads=128))
    assert rep.counts["add.f64"] == 2
    assert rep.counts["st.global"] == 2 + 1
    assert rep.counts["bytes.global.write"] == 8 * (40 + 28)


def test_odd_rows_cost_more_sectors() -> None:
    src, out = glob("src", f64, 8 * 33 + 32), glob("out", f64, 8 * 32)
    f = kernel(lambda b, v: b.st(out, v.bx * 32 + v.lane, b.ld(src, v.bx * 33 + v.lane)), (src, out), grid=(8, 1, 1))
    _, rep = clean(f)
    assert rep.counts["sectors.global.write"] == 64
    assert rep.counts["sectors.global.read"] == 2 * 8 + 6 * 9


# ------------------------------------------------------------------------------------------------ interface
def test_findings_name_the_users_line() -> None:
    out = glob("out", f64, 16)

    def body(b: Any, v: Any) -> None:
        b.loc = Loc(__file__, 1)
        b.st(out, v.tid, b.const(f64, 1.0))

    r = run(kernel(body, (out,)), {"out": np.zeros(16)})
    with pytest.raises(KernelFault) as e:
        r.raise_if_errors()
    assert f"{__file__}:1" in str(e.value) and "remedy:" in str(e.value) and "warp.st" in str(e.value)
    assert "lane 16" in str(r) and "Loads, stores, atomics" in str(e.value)


def test_reports_add_up() -> None:
    out = glob("out", f64, 32)
    f = kernel(lambda b, v: b.st(out, v.tid, b.const(f64, 1.0)), (out,))
    _, a = clean(f)
    assert (a + a).counts["st.global"] == 2 and (a + a).raise_if_errors().ok


@pytest.mark.parametrize(("args", "match"), [
    ({}, "no argument for out"), ({"out": np.zeros(32), "x": 1}, "no parameter is called x"),
    ({"out": np.zeros(31)}, "wants 32 elements"), ({"out": np.zeros(32, np.float32)}, "float64"),
    ({"out": np.zeros((4, 8))}, "1-D"), ({"out": [0.0] * 32}, "list"),
])  # fmt: skip
def test_wrong_arguments(args: dict[str, Any], match: str) -> None:
    out = glob("out", f64, 32)
    f = kernel(lambda b, v: b.st(out, v.tid, b.const(f64, 1.0)), (out,))
    with pytest.raises(ArrayError, match=match):
        run(f, args)


def test_read_only_output_and_unknown_checker() -> None:
    out = glob("out", f64, 32)
    f = kernel(lambda b, v: b.st(out, v.tid, b.const(f64, 1.0)), (out,))
    frozen = np.zeros(32)
    frozen.flags.writeable = False
    with pytest.raises(ArrayError, match="read-only"):
        run(f, {"out": frozen})
    with pytest.raises(ScheduleError, match="speed"):
        run(f, {"out": np.zeros(32)}, checks={"speed"})


def test_progress_and_batches() -> None:
    out, seen = glob("out", f64, 320), list[tuple[int, int]]()
    f = kernel(lambda b, v: b.st(out, v.bx * 32 + v.tid, b.const(f64, 1.0)), (out,), grid=(10, 1, 1))
    clean(f, batch=4, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(4, 10), (8, 10), (10, 10)]


@pytest.mark.parametrize("declared", [1, 2, 4])
def test_a_degree_above_the_declared_one_is_a_note(declared: int) -> None:
    t = shared("t", f64, 64)
    f = kernel(lambda b, v: b.st(t, v.lane * 2, b.const(f64, 0.0), degree=declared), (), (t,))
    _, rep = clean(f)
    assert rep.conflicts[0].declared == declared
    assert [n.kind for n in rep.notes] == ["conflict"] * (declared < 2)
    if rep.notes:
        assert "degree 2 at @t, above the declared 1" in rep.notes[0].message and "pad" in rep.notes[0].remedy


def test_traffic_is_given_for_each_global_op() -> None:
    src, out = glob("src", f64, 128), glob("out", f64, 32)
    f = kernel(lambda b, v: b.st(out, v.lane, b.ld(src, v.lane * 4)), (src, out))
    _, rep = clean(f)
    assert [(t.buffer, t.requests, t.sectors, t.per_request) for t in rep.traffic] == [
        ("src", 1, 32, 32.0),
        ("out", 1, 8, 8.0),
    ]


def test_a_run_can_end_at_its_first_error() -> None:
    dst, tile = glob("dst", f64, 32), shared("tile", f64, 32)

    def body(b: Any, v: Any) -> None:
        x = b.ld(tile, v.lane)  # nobody has written it
        b.st(dst, v.lane + 1, x)
        b.st(dst, v.lane - 1, x)

    func = kernel(body, (dst,), (tile,))
    assert {e.kind for e in run(func, zeros(func)).errors} == {"uninit", "bounds", "global"}
    args = zeros(func)
    report = run(func, args, first=True)
    assert [e.kind for e in report.errors] == ["uninit"] and not args["dst"].any()
