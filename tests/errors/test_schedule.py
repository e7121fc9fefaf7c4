"""Schedules as text: what is printed comes back, and every mistake is named with what exists and a remedy."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sparsegen.cost.devices import load_profile
from sparsegen.families.stream import LANE_COLUMNS
from sparsegen.families.toeplitz import PRODUCTS
from sparsegen.footprint import Footprint
from sparsegen.geometry import geometry, legal, legalise
from sparsegen.ir.errors import ScheduleError
from sparsegen.registry import families
from sparsegen.schedule import Schedule, StencilSchedule
from sparsegen.sizes import MMA

#: any stencil of edge 3
ANY = Footprint(3)


@st.composite
def schedules(draw: st.DrawFn) -> StencilSchedule:
    family = draw(st.sampled_from(list(families("stencil"))))
    if family == "stream":
        return StencilSchedule(
            "stream", fuse=draw(st.integers(1, 8)), levels=draw(st.integers(1, 32)),
            cols=draw(st.sampled_from(LANE_COLUMNS)), rows=draw(st.none() | st.integers(1, 5000)),
            warps=draw(st.integers(1, 8)), stages=draw(st.integers(2, 8)), unroll=draw(st.integers(1, 2)),
        )  # fmt: skip
    if family == "patches":
        return StencilSchedule(
            "patches", mma=draw(st.sampled_from([m for m in MMA if m != "none"])), fuse=draw(st.integers(1, 3)),
            levels=draw(st.integers(1, 8)), strips=draw(st.integers(1, 4)), rows=draw(st.none() | st.integers(1, 5000)),
            warps=draw(st.integers(1, 8)), stages=draw(st.integers(2, 8)),
        )  # fmt: skip
    if family == "toeplitz":
        return StencilSchedule(
            "toeplitz", mma=draw(st.sampled_from([m for m in MMA if m != "none"])), fuse=draw(st.integers(1, 64)),
            products=draw(st.sampled_from(PRODUCTS)), warps=draw(st.integers(1, 8)), stages=draw(st.integers(2, 4)),
        )  # fmt: skip
    if family == "lowrank":
        mma, strips = draw(st.sampled_from([m for m in MMA if m != "none"])), draw(st.integers(1, 4))
        parts, blocks = draw(st.integers(1, 4)), draw(st.integers(1, 8))
        return StencilSchedule(
            "lowrank", mma=mma, tile=(strips * MMA[mma][0], 8 * parts * blocks), warps=strips * parts,
            fuse=draw(st.integers(1, 12)), stages=draw(st.integers(1, 4)),
        )  # fmt: skip
    fuse = draw(st.integers(1, 3))
    if family == "direct":
        block = (draw(st.integers(1, 1024)), draw(st.integers(1, 64)))
        assume(block[0] * block[1] <= 1024)
        return StencilSchedule("direct", block=block, fuse=fuse)
    stages, warps = draw(st.integers(1, 4)), draw(st.integers(1, 32))
    if family == "tiled":
        strips = draw(st.sampled_from([d for d in range(1, warps + 1) if warps % d == 0]))
        tile = (warps // strips * draw(st.integers(1, 8)), 32 * strips)
        return StencilSchedule("tiled", tile=tile, stages=stages, warps=warps, fuse=fuse)
    tile2 = draw(st.none() | st.tuples(st.integers(1, 256), st.integers(1, 999)))
    transform = draw(st.sampled_from(["implicit", "explicit"])) if stages == 1 else "implicit"
    return StencilSchedule(
        "stencil2row", tile=tile2, stages=stages, warps=warps, fuse=fuse, mma=draw(st.sampled_from(list(MMA))),
        lut=draw(st.booleans()), dirty=draw(st.booleans()), pad=draw(st.booleans()), transform=transform,
    )  # fmt: skip


@given(schedules())
def test_text_round_trip(s: StencilSchedule) -> None:
    assert Schedule.parse(str(s)) == s
    assert str(Schedule.parse(str(s))) == str(s)


def test_line_of_the_contract() -> None:
    s = Schedule.parse("stencil2row mma=f64.m8n8k4 fuse=3 tile=32x64 stages=2")
    assert (s.family, s.mma, s.fuse, s.tile, s.stages, s.warps, s.lut) == (
        "stencil2row", "f64.m8n8k4", 3, (32, 64), 2, 8, True)  # fmt: skip
    assert str(s) == (
        "stencil2row mma=f64.m8n8k4 fuse=3 tile=32x64 warps=8 stages=2 lut=on dirty=on pad=on transform=implicit"
    )
    assert str(StencilSchedule("direct")) == "direct block=32x8 fuse=1"
    assert str(StencilSchedule("tiled")) == "tiled fuse=1 tile=32x64 warps=8 stages=1"
    assert str(StencilSchedule("lowrank")) == "lowrank mma=f64.m16n8k4 fuse=1 tile=64x64 warps=4 stages=1"
    assert Schedule.parse("lowrank tile=auto").tile == (64, 64) and Schedule.parse("lowrank").widens
    assert Schedule.parse("stencil2row").tile is None
    s = Schedule.parse("stream fuse=2 levels=5")
    assert (s.steps, s.cols, s.rows, s.warps, s.stages, s.threads, s.widens) == (10, 4, None, 2, 8, 64, False)
    assert str(s) == "stream fuse=2 levels=5 cols=4 rows=auto warps=2 stages=8 unroll=1"
    s = Schedule.parse("patches")
    assert str(s) == "patches mma=f64.m16n8k16 fuse=2 levels=3 strips=2 rows=auto warps=4 stages=6"
    assert (s.steps, s.threads, s.widens) == (6, 128, True)
    assert Schedule.parse("stream rows=931").rows == 931 and Schedule.parse("tiled fuse=3").steps == 3
    assert Schedule.parse("stencil2row").widens and not Schedule.parse("tiled").widens


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty", "stencil2row"]),
        ("tilde stages=2", ["'tilde'", "did you mean 'tiled'", "direct"]),
        ("stencil2row mma=f64.m8n8k5", ["'f64.m8n8k5'", "did you mean 'f64.m8n8k4'", "f64.m16n8k16", "none"]),
        ("tiled stage=2", ["'stage=2'", "did you mean 'stages=…'", "warps"]),
        ("tiled mma=none", ["'mma=none'", "tiled", "choose among"]),
        ("direct tile=32x64", ["'tile=32x64'", "direct", "block"]),
        ("tiled stages", ["'stages'", "no value"]),
        ("tiled stages=", ["'stages='", "no value"]),
        ("tiled stages=2 stages=3", ["'stages=3'", "twice"]),
        ("tiled stages=two", ["'stages=two'", "number"]),
        ("tiled stages=0", ["'stages=0'"]),
        ("tiled stages=5", ["stages=5", "1 to 4"]),
        ("stencil2row fuse=4", ["fuse=4", "1 to 3"]),
        ("tiled tile=32", ["'tile=32'", "32x64"]),
        ("tiled tile=0x64", ["'tile=0x64'"]),
        ("tiled tile=32x48", ["tile=32x48", "multiples of 32"]),
        ("tiled tile=3x64", ["tile=3x64", "warps=8"]),
        ("stencil2row lut=yes", ["'lut=yes'", "on or off"]),
        ("stencil2row transform=explicid", ["'explicid'", "did you mean 'explicit'"]),
        ("stencil2row transform=explicit stages=2", ["transform=explicit", "contradicts", "stages=2"]),
        ("direct block=64x32", ["2048 threads", "1024"]),
        ("stencil2row warps=33", ["warps=33", "1 to 32"]),
        ("stream level=3", ["'level=3'", "did you mean 'levels=…'"]),
        ("stream levels=33", ["levels=33", "1 to 32"]),
        ("stream fuse=9", ["fuse=9", "1 to 8"]),
        ("stream stages=1", ["stages=1", "2 to 8"]),
        ("stream cols=5", ["cols=5", "2, 4, 6, 8, 16"]),
        ("stream rows=few", ["'rows=few'", "number"]),
        ("stream unroll=3", ["unroll=3", "1 to 2"]),
        ("patches level=3", ["'level=3'", "did you mean 'levels=…'"]),
        ("patches levels=9", ["levels=9", "1 to 8"]),
        ("patches fuse=4", ["fuse=4", "1 to 3"]),
        ("patches strips=5", ["strips=5", "1 to 4"]),
        ("patches stages=1", ["stages=1", "2 to 8"]),
        ("stream strips=1", ["'strips=1'", "means nothing to a stream"]),
        ("toeplitz products=6", ["products=6", "4, 8"]),
        ("toeplitz fuse=65", ["fuse=65", "1 to 64"]),
        ("toeplitz stages=1", ["stages=1", "2 to 4"]),
        ("lowrank fuse=13", ["fuse=13", "1 to 12"]),
        ("lowrank tile=24x64", ["tile=24x64", "strips of 16 rows", "warps=4"]),
        ("lowrank tile=64x64 warps=6", ["warps=6", "rows/16"]),
        ("lowrank tile=32x24", ["tile=32x24", "blocks of 8 columns"]),
        ("lowrank lut=on", ["'lut=on'", "lowrank", "stages"]),
        ("stream tile=32x64", ["'tile=32x64'", "levels", "cols"]),
        ("tiled levels=2", ["'levels=2'", "tiled"]),
    ],
)
def test_bad_text(text: str, words: list[str]) -> None:
    with pytest.raises(ScheduleError) as e:
        Schedule.parse(text)
    for word in words:
        assert word in str(e.value)
    assert e.value.hint


def test_bad_values() -> None:
    with pytest.raises(ScheduleError, match="mma=none means nothing to a tiled schedule"):
        StencilSchedule("tiled", mma="none")
    with pytest.raises(ScheduleError, match="unknown schedule"):
        StencilSchedule("tile")


def test_default_tile_follows_the_edge() -> None:
    for mma, k, fuse, tile in (
        ("f64.m8n8k4", 3, 3, (32, 64)),
        ("f64.m16n8k8", 7, 1, (32, 128)),
        ("none", 3, 1, (32, 32)),
    ):
        s = legalise(StencilSchedule("stencil2row", mma=mma, fuse=fuse), k)
        assert s.tile == tile and legalise(s, k) == s
    with pytest.raises(ScheduleError, match=r"64 columns are no multiple of 16·\(7\+1\) = 128"):
        legalise(Schedule.parse("stencil2row mma=f64.m16n8k4 fuse=3 tile=32x64"), 3)
    with pytest.raises(ScheduleError, match="odd"):
        legalise(StencilSchedule("stencil2row"), 4)
    with pytest.raises(ScheduleError, match="do not divide"):
        legalise(Schedule.parse("stencil2row fuse=3 tile=30x64"), 3)


def test_geometry_of_the_paper() -> None:
    g = geometry(Schedule.parse("stencil2row fuse=3 tile=32x64"), ANY)
    assert (g.k, g.halo_rows, g.halo_cols, g.groups, g.depth, g.n_tiles, g.tiles_per_warp) == (7, 38, 70, 8, 52, 1, 4)
    assert dict(g.mmas) == {"f64.m8n8k4": 26 * 32} and g.fragments == 26  # 26 mma per 64 outputs
    assert g.stride_ab == 276 and g.offset_dirty == 16 * 276  # 7*31 + 52 = 269, padded
    assert g.smem_bytes == (16 * 276 + 2) * 8
    two = geometry(Schedule.parse("stencil2row fuse=3 tile=32x64 stages=2"), ANY)
    assert (two.before, two.pitch_raw) == (4, 72)  # radius 3: one more column, 16-byte copies
    assert two.smem_bytes == -(-g.smem_bytes // 128) * 128 + 38 * 72 * 8
    wide = [geometry(Schedule.parse(f"stencil2row fuse=3 mma=f64.m16n8k{k}"), ANY) for k in (4, 8, 16)]
    assert [sum(dict(w.mmas).values()) // 32 for w in wide] == [26, 13, 7]  # per 128 outputs


@given(schedules(), st.sampled_from([1, 3, 5, 7]))
def test_geometry_holds_together(s: StencilSchedule, k: int) -> None:
    fp = Footprint(k, ranks=(1,) * 12 if s.family == "lowrank" else ())
    try:
        g = geometry(s, fp)
    except ScheduleError:
        assume(False)
    if s.family == "stream":
        assert g.halo_rows == g.rows + g.reach and g.cols == s.warps * (32 * s.cols - 2 * g.before) > 0
        assert g.smem_bytes == s.warps * s.stages * g.pitch_raw * 8 and g.before >= s.levels * g.radius
        return
    if s.family == "patches":
        assert g.halo_rows == g.rows + 2 * s.levels * g.radius + 2 * (s.levels - 1)
        assert g.cols + 2 * s.warps * g.radius * s.levels <= g.halo_cols <= s.warps * g.pitch_raw
        assert g.smem_bytes % (16 * s.warps) == 0 and g.before >= s.levels * g.radius
        return
    if s.family == "toeplitz":
        assert g.cols == s.warps * g.m * 8 * s.products and (g.rows, g.halo_rows) == (1, 1)
        assert g.cols + 2 * g.radius <= g.halo_cols <= g.cols + g.before + g.radius + 7 and g.halo_cols % 8 == 0
        return
    assert g.halo_rows == g.rows + g.k - 1 and g.halo_cols == g.cols + g.k - 1
    if s.family == "direct":
        return
    if s.family == "lowrank":
        assert g.tiles_per_warp * s.warps * g.m * 8 == g.rows * g.cols
        assert g.before % 4 == 0 and g.radius <= g.before <= g.radius + 3
        assert g.pitch_raw % 8 == 4 and g.pitch_raw >= g.width >= g.before + g.cols + g.radius
        return
    assert g.pitch_raw % 2 == 0 and g.pitch_raw >= g.before + g.cols + g.radius and g.radius <= g.before <= g.radius + 3
    if s.family == "tiled":
        assert g.per_x * g.per_y * g.threads == g.rows * g.cols
    if s.family == "stencil2row":
        assert g.groups * (g.k + 1) == g.cols and g.groups % g.m == 0 and g.k**2 <= g.depth < g.k**2 + 4
        assert g.stride_ab >= g.k * (g.rows - 1) + g.depth and g.stride_ab >= g.k * g.halo_rows
        assert not s.pad or g.stride_ab % 16 in (4, 12)
        assert g.tiles_per_warp * s.warps * g.m * (g.k + 1) == g.rows * g.cols


@pytest.mark.parametrize(
    ("text", "k", "device", "dtype", "words"),
    [
        ("stencil2row mma=f64.m16n8k4 fuse=3", 3, "a100", "f64", ["needs sm_90", "sm_80", "mma=f64.m8n8k4"]),
        ("stencil2row mma=f64.m8n8k4", 7, "v100", "f64", ["needs sm_80", "mma=none"]),
        ("tiled stages=2", 3, "v100", "f64", ["cp.async", "sm_70", "stages=1"]),
        ("stencil2row", 7, "h200", "f32", ["multiplies f64", "f32", "mma=none"]),
        ("stencil2row fuse=3", 5, "h200", "f64", ["edge of 13", "doubles of weights", "lower fuse"]),
        (
            "stencil2row mma=f64.m16n8k4 fuse=3 stages=4 tile=64x128",
            3,
            "h200",
            "f64",
            ["bytes of shared memory", "232448", "stages"],
        ),
        ("tiled tile=512x128 warps=16", 3, "h200", "f64", ["bytes of shared memory", "tile="]),
        ("tiled tile=128x64 warps=2", 3, "h200", "f64", ["registers", "warps"]),
        ("tiled", 3, "h200", "s8", ["'s8'", "f64", "bf16"]),
    ],
)
def test_illegal_on_the_device(text: str, k: int, device: str, dtype: str, words: list[str]) -> None:
    with pytest.raises(ScheduleError) as e:
        legal(Schedule.parse(text), Footprint(k, dtype=dtype), load_profile(device))
    for word in words:
        assert word in str(e.value)


@pytest.mark.parametrize("mma", list(MMA))
def test_legal_where_it_must_be(mma: str) -> None:
    for stages in (1, 2):
        legal(StencilSchedule("stencil2row", mma=mma, fuse=3, stages=stages), ANY, load_profile("h200"))
    legal(Schedule.parse("stencil2row mma=none"), Footprint(7), load_profile("v100"))
    legal(Schedule.parse("tiled"), Footprint(7, dtype="f32"), load_profile("h200"))
