"""What the tests of N:M products share: random matrices of a pattern, what lanes find in their packed arrays, launches,
schedules and refusals."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

import sparsegen as sg
from sparsegen.backends.emulator import Report, run
from sparsegen.formats.encode import LargerWarning
from sparsegen.formats.nm import Nm
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.nm import LANES, chunks
from sparsegen.ir.warp import Func
from sparsegen.products.product import Product
from tests.products_kit import DTYPES

Array = npt.NDArray[Any]


def pruned(
    m: int,
    k: int,
    n: int,
    width: int,
    vector: Sequence[int] = (1, 1),
    dtype: str = "f16",
    fill: float = 1,
    seed: int = 0,
) -> Array:
    """A matrix [m, k] with random weights in n of every ``width`` columns; ``fill``: the share of windows that keep
    any."""
    rng, (r, c) = np.random.default_rng(seed), vector
    groups, windows = -(-m // r), -(-k // width)
    order = rng.random((groups, windows, width // c)).argsort(-1)
    kept = (order < n // c) & (rng.random((groups, windows, 1)) < fill)
    mask = kept.repeat(c, 2).reshape(groups, windows * width).repeat(r, 0)[:m, :k]
    return np.where(mask, rng.uniform(-1, 1, (m, k)), 0).astype(DTYPES[dtype])


def matrix(m: int, k: int, n: int, width: int, vector: Sequence[int] = (1, 1), dtype: str = "f16", **how: Any) -> Nm:
    """The same, encoded, be it larger than dense."""
    w = pruned(m, k, n, width, vector, dtype, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargerWarning)
        return cast(Nm, sg.sparse(w, format="nm", n=n, m=width, vector=tuple(vector)))


def unpacked(w: Nm, values: Any, offsets: Any) -> tuple[Array, Array]:
    """The matrix that a warp's lanes find in packed words, and which of its elements they find, zeros too.

    A chunk takes its values in pieces of four words, its offsets in groups of four, two and one words; of each piece
    or group those of all lanes lie side by side.
    """
    c, (m, k), item = chunks(w.n, w.m, w.kind.nbytes), w.shape, w.kind.nbytes
    words, at = np.asarray(values).view("u4"), np.asarray(offsets).view("u4")
    count, pieces = c.count(k, w.m), c.stored * item // 16
    tiles, per = -(-m // LANES), c.entries * c.parts // c.windows  # entries of a window
    whole = -(-k // w.m) * w.m + c.windows * w.m
    out, found = np.zeros((tiles * LANES, whole), w.kind.numpy()), np.zeros((tiles * LANES, whole), bool)
    values_of = words.reshape(tiles * count, pieces, LANES, 4).transpose(0, 2, 1, 3).reshape(tiles, count, LANES, -1)
    lanes = at.reshape(tiles * count, LANES * c.words)
    for tile in range(tiles):
        for chunk in range(count):
            numbers, begin = [0] * LANES, 0
            while begin < c.words:
                size = next(s for s in (4, 2, 1) if s <= c.words - begin)
                group = lanes[tile * count + chunk, begin * LANES :][: size * LANES].reshape(LANES, size)
                for lane in range(LANES):
                    numbers[lane] |= sum(int(word) << 32 * i for i, word in enumerate(group[lane])) << 32 * begin
                begin += size
            first = chunk // c.parts * c.windows * w.m
            for lane in range(LANES):
                row, kept = tile * LANES + lane, np.ascontiguousarray(values_of[tile, chunk, lane]).view(w.kind.numpy())
                for entry in range(c.entries):
                    window = 0 if c.parts > 1 else entry // per
                    column = first + window * w.m + (numbers[lane] >> entry * c.bits & (1 << c.bits) - 1)
                    out[row, column] += kept[entry]
                    found[row, column] = True
                assert not numbers[lane] >> c.entries * c.bits and not kept[c.entries :].astype(float).any()
    assert not out[m:].any() and not out[:, k:].any()
    return out[:m, :k], found[:m, :k]


# ------------------------------------------------------------------------------------------------ packed by torch
def encoded(dense: Array, n: int, m: int, vector: Sequence[int] = (1, 1), device: str = "cpu") -> tuple[Nm, Nm]:
    """A matrix as numpy and as torch, there on a device, encode it; the test is skipped without torch."""
    torch: Any = pytest.importorskip("torch")
    tensor = torch.from_numpy(dense.astype("f4")).to(device, getattr(torch, dense.dtype.name))
    here, there = (cast(Nm, sg.sparse(a, format="nm", n=n, m=m, vector=tuple(vector))) for a in (dense, tensor))
    return here, there


def packed_alike(pack: Callable[..., Any], here: Nm, there: Nm, *cut: Any) -> Any:
    """What torch packs; AssertionError unless numpy packs the same bytes."""
    torch: Any = pytest.importorskip("torch")
    ours, theirs = pack(here, *cut), pack(there, *cut)
    assert np.array_equal(ours.view("u1"), theirs.view(torch.uint8).cpu().numpy())
    return theirs


# ------------------------------------------------------------------------------------------------ what runs
def ran(func: Func, arguments: Callable[[], dict[str, Array]], exact: Array, seed: int = 0) -> Report:
    """What checkers say of a launch; AssertionError unless they find nothing and y is right."""
    args = arguments()
    report = run(func, args, seed=seed, uninit=("y",))
    assert report.ok and not report.notes, report
    assert np.abs(args["y"].astype(float) - exact).max() < 2e-2
    return report


def listed(product: Product, device: str, family: str) -> list[Any]:
    """The costs of a family's schedules for a device."""
    return [c for c in sg.schedules(product, device=device) if c.schedule.family == family]


def formulas_hold(costs: Iterable[Any]) -> None:
    """AssertionError unless each formula, worked out with sympy, gives the time, and its terms have reasons."""
    for cost in costs:
        assert float(cost.formula.xreplace(cost.substitution())) == pytest.approx(cost.time, rel=1e-9)
        assert cost.reasons().keys() == cost.terms.keys()


def refused(product: Product, device: str, words: str, says: str, hint: str) -> str:
    """The message that refuses a schedule; AssertionError unless it says this, and has this remedy."""
    with pytest.raises(ScheduleError) as error:
        sg.compile(product, device=device, schedule=words)
    message = str(error.value)
    assert says in message and hint in (error.value.hint or ""), message
    return message
