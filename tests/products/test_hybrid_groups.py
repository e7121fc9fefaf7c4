"""Dense tiles that warpgroups multiply, columns of x as rows: right for bands of any height, what is packed, listed and
refused."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.families.spmm.hybrid import FAMILY
from sparsegen.ir.numbers.mixed import TILES
from sparsegen.products.hybrid import HybridNumbers, bands, columns, images, spans
from tests.mixed_kit import line, matrix
from tests.nm_kit import formulas_hold, listed, refused
from tests.products_kit import called

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
DTYPES = ("f16", "bf16")


@pytest.mark.parametrize("slices", [1, 2, 8])
@pytest.mark.parametrize("tile", TILES)
def test_warpgroups(tile: int, slices: int) -> None:
    """Bands of 16 to 128 rows, one, two and four products side by side of one warpgroup or of two, parts of turns and
    whole ones, an odd number of columns; an empty band, rows that are cut, and none of both parts."""
    cases = [(64, "1x4", 1, 40, 0), (128, "1x8", 2, 136, 0), (256, "1x4", 1, 200, 1), (64, "1x4", 4, 17, 0)]
    for i, (cols, warps, high, n, long) in enumerate(cases):
        groups = int(warps[2:]) // 4
        sums, threads = high * tile // 2 * cols // 64 // groups, 128 * groups * slices
        if high * tile > 128 or sums > 64 or threads > min(512, 32 * high * tile):
            continue
        W = matrix(150, 203, tile, DTYPES[i % 2], long=long)
        kernel = called(sg.spmm(W, n=n, bias=True), schedule=line(cols, warps, 2, 1, high, slices, "wgmma"))
        report = kernel.check()
        assert report.ok and not report.notes and "warp.wgmma" in kernel.ir("warp")
        assert "warp.mma" not in kernel.ir("warp") and W.tiles > 3
    called(sg.spmm(matrix(70, 203, tile, delta=1.0), n=40), schedule=line(64, "1x4", mma="wgmma"))
    called(sg.spmm(matrix(70, 203, tile, delta=0.0), n=40), schedule=line(64, "1x4", mma="wgmma"))


def test_images_hold_the_dense_tiles() -> None:
    """A tile's row in a row of the image, its pieces in the places of the swizzle."""
    for tile, high in ((16, 2), (32, 1), (64, 2)):
        W = matrix(150, 203, tile)
        rows = images(W, high).reshape(-1, high * tile, tile)
        strip = np.repeat(np.arange(len(W.arrays["ptr"]) - 1), np.diff(W.arrays["ptr"]))
        wide, seen = tile // 8, 0
        for (begin, end), band in zip(spans(W, high), bands(W, high).order, strict=True):
            for number in range(begin, end):
                for s in range(high):
                    here = (strip == band * high + s) & (W.arrays["idx"] == columns(W, high)[number])
                    want = np.zeros((tile, tile), "f2")
                    if here.any():
                        (at,) = np.flatnonzero(here)
                        want, seen = W.arrays["values"].reshape(-1, tile, tile)[at], seen + 1
                    for r in range(tile):
                        row = s * tile + r
                        swapped = [p ^ (row // (8 // wide) % wide) for p in range(wide)]
                        assert np.array_equal(rows[number, row].reshape(wide, 8)[swapped].reshape(-1), want[r])
        assert seen == W.tiles


def test_warpgroups_are_listed_where_columns_are_many() -> None:
    """And cost less where bands are so high that their products fill the tensor cores."""
    found = {n: {c.schedule.mma for c in listed(sg.spmm(matrix(130, 300), n=n), "h200", "hybrid")} for n in (128, 300)}
    assert found == {128: {"sync"}, 300: {"sync", "wgmma"}}
    assert {c.schedule.mma for c in listed(sg.spmm(matrix(130, 300), n=300), "a100", "hybrid")} == {"sync"}
    facts, device = HybridNumbers.of(sg.spmm(matrix(2000, 2000, 64), n=512)), load_profile("h200")
    for high, less in ((1, 0.9), (2, 0.6)):
        sync, groups = (
            FAMILY.cost(facts, s, device, FAMILY.shape(facts, s, device))
            for s in (sg.SpmmSchedule.parse(line(128, "1x8", high=high, mma=mma)) for mma in ("sync", "wgmma"))
        )
        assert groups.terms["tensor"] < less * sync.terms["tensor"] and groups.terms["l2"] == sync.terms["l2"]


def test_the_formula_is_what_is_chosen_by() -> None:
    costs = listed(sg.spmm(matrix(161, 300), n=270), "h200", "hybrid")
    formulas_hold([c for c in costs if c.schedule.mma == "wgmma"][::17])


def test_what_cannot_run_is_refused_with_a_remedy() -> None:
    W = matrix(130, 100)
    for matrix_, device, words, says, hint in (
        (W, "a100", line(64, "1x4", mma="wgmma"), "mma=wgmma multiplies by warpgroups, which NVIDIA A100", "mma=sync"),
        (W, "h200", line(64, "2x2", mma="wgmma"), "warps=2x2 are no warpgroups that share 64 columns", "warps=1x4"),
        (W, "h200", line(64, "1x2", mma="wgmma"), "warps=1x2 are no warpgroups", "four warps for every 64 columns"),
        (matrix(130, 100, dtype="f32"), "h200", line(64, "1x4", mma="wgmma"), "f16 and bf16, not f32", "mma=sync"),
    ):  # fmt: skip
        refused(sg.spmm(matrix_, n=16), device, words, says, hint)
