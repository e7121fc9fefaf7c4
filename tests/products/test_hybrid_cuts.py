"""Long rows outside of dense tiles: teams of a block share them, piece by piece, in one order, and so no team is long
at work when the others have done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cost.devices import load_profile
from sparsegen.families.spmm.hybrid import FAMILY
from sparsegen.ir.kernels.csr import ALIGN
from sparsegen.ir.numbers.mixed import PLACES, TILES
from sparsegen.products.hybrid import EACH, HEIGHTS, LEAST, LONG, PIECES, HybridNumbers, pieces, records
from tests.mixed_kit import line, matrix
from tests.nm_kit import formulas_hold, listed
from tests.products_kit import EPILOGUES, called, operands

pytestmark = pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")


def checked(product: sg.Product, *how: Any) -> Any:
    """The kernel, which cuts rows; AssertionError unless it is right, with nothing that a checker finds."""
    kernel = called(product, *how)
    assert "tile.put_row" in kernel.ir("tile") and "tile.add_rows" in kernel.ir("tile")
    report = kernel.check()
    assert report.ok and not report.notes
    return kernel


@pytest.mark.parametrize("n", [1, 17, 40, 136])
@pytest.mark.parametrize("tile", TILES)
def test_any_tile_and_number_of_columns(tile: int, n: int) -> None:
    """Fewer teams than pieces and more, teams whose groups share a piece; one dense tile high and two; two types."""
    for dtype, delta in (("f16", 0.3), ("bf16", 1.0)):
        W = matrix(130, 303, tile, dtype, delta, long=2)
        assert bool(W.tiles) == (delta < 1)
        for words in (line(), line(16, "2x1", high=2), line(128, "1x8", 2, 1), line(128, "1x2", unroll=4)):
            if "unroll=4" not in words or tile < 64:
                checked(sg.spmm(W, n=n), "row", "row", words)


@pytest.mark.parametrize(*EPILOGUES)
def test_epilogues(activation: Any, operands: tuple[str, ...]) -> None:
    W = matrix(100, 290, 32, long=1)
    checked(sg.spmm(W, n=24, activation=activation, **dict.fromkeys(operands, True)), "column", "row", line(64, "2x2"))


@pytest.mark.parametrize("unroll", [1, 8])
def test_f32_in_tf32(unroll: int) -> None:
    """What is not in dense tiles is exact also in pieces."""
    W = matrix(64, 300, 32, "f32", delta=1.0, long=1, fill=0.0)
    assert not W.tiles
    checked(sg.spmm(W, n=24, precision="tf32"), "row", "row", line(unroll=unroll))


def test_sums_have_the_same_bits_every_time() -> None:
    kernel = checked(sg.spmm(matrix(64, 300, 32, long=1), n=16), "row", "row", line())
    x = operands(kernel.product)["x"]
    assert np.array_equal(kernel(x), kernel(x))
    assert not any(name.startswith(("atom", "red")) for name in kernel.counts())


@pytest.mark.parametrize("high", HEIGHTS)
@pytest.mark.parametrize("tile", TILES)
def test_pieces_cover_long_rows_and_no_others(tile: int, high: int) -> None:
    W = matrix(200, 900, tile, delta=1.0, long=3, fill=0.0, noise=0.005)
    numbers = HybridNumbers.of(sg.spmm(W, n=8)).counted(high)
    ptr, seen, whole = W.arrays["rest_ptr"], 0, 0
    new = np.empty(201, int)
    new[W.order] = np.arange(200)
    for rows, parts in zip(records(W, high), pieces(W, high), strict=True):
        assert (parts[:, 3] == np.arange(tile * high)).all()
        used, real = parts[parts[:, 0] < 200], rows[rows[:, 0] < 200]
        assert (parts[len(used) :, 0] == 200).all() and not parts[len(used) :, 1:3].any() and len(used) <= PIECES
        for row, begin, end, word in real:
            first, count = word // PLACES % PLACES, word // PLACES**2
            at = new[row]
            if not count:
                assert (begin, end, first) == (*ptr[at : at + 2], 0)
                whole = max(whole, end - begin)
                continue
            own = used[first : first + count]
            assert begin == end and (own[:, 0] == row).all()
            assert own[0, 1] == ptr[at] and own[-1, 2] == ptr[at + 1] and (own[1:, 1] == own[:-1, 2]).all()
            assert not (own[1:, 1] % ALIGN).any() and (own[:, 2] - own[:, 1]).max() <= numbers.piece
            assert ptr[at + 1] - ptr[at] > LONG - ALIGN
            seen = max(seen, count)
    assert numbers.piece % EACH == 0 and numbers.whole == whole and LEAST <= seen <= numbers.cuts
    assert max(len(parts[parts[:, 0] < 200]) for parts in pieces(W, high)) == numbers.cuts


def test_rows_that_are_alike_are_not_cut() -> None:
    """All teams have enough to do without: no shared memory, and no barrier, for pieces."""
    W = matrix(96, 900, 32, delta=1.0, noise=0.1, fill=0.0)
    assert np.diff(W.arrays["rest_ptr"]).min() > LONG
    kernel = called(sg.spmm(W, n=16), schedule=line())
    assert "tile.put_row" not in kernel.ir("tile") and "pieces" not in kernel.ir("tile")
    assert "in pieces" not in str(kernel.explain())


def test_what_is_said_and_expected_of_them() -> None:
    product = sg.spmm(matrix(200, 900, long=3), n=70)
    kernel = called(product, schedule=line(64, "1x4"))
    cuts, piece = HybridNumbers.of(product).counted(1)[-2:]
    assert f"of a row at most (long rows in pieces of {piece} at most, {cuts} of a band)" in str(kernel.explain())
    formulas_hold(listed(product, "h200", "hybrid")[::37])


def test_the_longest_piece_is_waited_for_and_not_the_longest_row() -> None:
    facts, s = (
        HybridNumbers.of(sg.spmm(matrix(200, 900, long=1, fill=0.9, noise=0.002), n=64)),
        sg.SpmmSchedule.parse(line(64, "1x4")),
    )
    device = load_profile("h200")

    def chain(facts: HybridNumbers) -> float:
        return FAMILY.cost(facts, s, device, FAMILY.shape(facts, s, device)).terms["chain"]

    one, *others = facts.counts
    walked = replace(facts, counts=(one._replace(whole=facts.most, cuts=0, piece=0), *others))
    longer = replace(facts, counts=(one._replace(piece=4 * one.piece), *others))
    assert 2 * chain(facts) < chain(walked) and chain(facts) < chain(longer)
