"""Counts of products by formula against the emulator's: equal, or where the weights decide, equal in the mean."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.arrays import describe
from sparsegen.cost.counts.requests import wavefronts
from sparsegen.cost.devices import load_profile
from sparsegen.ir.errors import ScheduleError
from sparsegen.products import host
from sparsegen.products.arguments import variant
from sparsegen.products.counts import Orders, counts
from sparsegen.products.counts.data import density, tile_conflicts
from sparsegen.products.geometry import legal
from sparsegen.products.product import Problem, Product
from sparsegen.products.schedule import COLUMNS, SpmmSchedule
from tests.products_kit import matrix, operands, weights

#: Few SMs, so that runs of strips are long in small matrices; one copies in bulk, the other by cp.async.
DEVICES = {name: dataclasses.replace(load_profile(name), sms=3) for name in ("h200", "a100")}
#: What the weights have a say in, and where copies go by cp.async.
OF_WEIGHTS = {"bytes.bulk", "wavefronts.shared", "conflicts.shared"}
OF_COPIES = {"cp_async", "cp_async.shared", "wavefronts.cp_async", "bytes.global.read", "bytes.shared.write",
             "sectors.global.read"}  # fmt: skip
DRAWS = 32
Counts = dict[str, float]


def both(product: Product, line: str, device: str, x: str = "row", y: str = "row") -> tuple[Counts, Counts]:
    """The counts by formula and by the emulator."""
    k = sg.compile(product, device=DEVICES[device], backend="emulator", schedule=line)
    given = operands(product, x, y)
    arrays = {"in" if name == "x" else name: a for name, a in given.items()}
    v = variant(describe(given["x"]), describe(given["out"]), anywhere=True)
    (launch,) = host.counts(product, k._programs.get(v), arrays).launches
    found = counts(Problem.of(product), product.epilogue, k.schedule, k.device, Orders(*v))
    return found, {name: n for name, n in launch.counts.items() if n}


def loose(device: str) -> set[str]:
    return OF_WEIGHTS | (OF_COPIES if device == "a100" else set())


def drawn(seed: int) -> tuple[Product, str, str, str, str]:
    """A random product, a legal schedule, a device, the orders of x and y."""
    draw = random.Random(seed)
    while True:
        m, k = draw.choice(
            [(draw.randint(1, 140), draw.randint(1, 300)), (16 * draw.randint(1, 9), 64 * draw.randint(1, 4))]
        )
        one = draw.random() < 0.2
        n = 1 if one else draw.choice([1, draw.randint(1, 70), 8 * draw.randint(1, 8)])
        dtype, device = draw.choice(["f16", "bf16"]), draw.choice(sorted(DEVICES))
        act: Any = draw.choice([None, "relu", "gelu", "silu"])
        bias, scale, residual = (draw.random() < 0.4 for _ in range(3))
        w = matrix(m, k, draw.choice([0.0, 0.3, 0.5, 0.6, 0.9, 1.0]), dtype)
        product = sg.spmm(w, n=n, bias=bias, scale=scale, residual=residual, activation=act)
        mma, cols = ("none", 1) if one else (f"{dtype}.m16n8k16", draw.choice(COLUMNS))
        warps = draw.randint(1, 4), draw.randint(1, 4)
        s = SpmmSchedule("bitmap", mma, cols, warps, draw.randint(1, 5), draw.randint(2, 5), draw.choice([1, 1, 2, 3]))
        try:
            legal(Problem.of(product), s, DEVICES[device])
        except ScheduleError:
            continue
        return product, str(s), device, draw.choice(["row", "column"]), draw.choice(["row", "column"])


@pytest.mark.parametrize("seed", range(DRAWS))
def test_exact_where_the_weights_decide_nothing(seed: int) -> None:
    product, line, device, x, y = drawn(seed)
    found, wanted = both(product, line, device, x, y)
    differ = {name: (found.get(name, 0), wanted.get(name, 0)) for name in {*found, *wanted} - loose(device)}
    assert not {name: pair for name, pair in differ.items() if pair[0] != pair[1]}, (str(product), line, device, x, y)
    assert all(float(n).is_integer() for name, n in found.items() if name not in loose(device))
    for name in loose(device) - {"conflicts.shared"}:  # of a single small matrix
        assert found.get(name, 0) == pytest.approx(wanted.get(name, 0), rel=0.1), (name, str(product), line, device)


def test_the_draws_have_all_kinds() -> None:
    seen = set[Any]()
    for product, line, device, x, y in map(drawn, range(DRAWS)):
        s, e, (m, k) = SpmmSchedule.parse(line), product.epilogue, product.w.shape
        seen |= {device, ("x", x), ("y", y), ("cols", s.cols), ("splits", s.splits), ("odd", m % 16 > 0, k % 64 > 0)}
        seen |= {product.w.dtype, e.activation, *e.operands, ("tiles", product.n > s.cols)}
    wanted = {*DEVICES, "f16", "bf16", "bias", "scale", "residual", None, "relu", "gelu", "silu"}
    wanted |= {("cols", n) for n in (1, *COLUMNS)} | {("splits", n) for n in (1, 2, 3)}
    wanted |= {(name, order) for name in ("x", "y") for order in ("row", "column")}
    wanted |= {("odd", False, False), ("odd", True, True), ("tiles", False), ("tiles", True)}
    assert wanted <= seen, wanted - seen


@pytest.mark.parametrize(
    ("shape", "sparsity", "n", "device", "line"),
    [
        ((128, 256), 0.3, 8, "h200", "bitmap cols=8 warps=2x2 rows=2 stages=2 splits=1"),
        ((41, 140), 0.6, 1, "a100", "bitmap mma=none warps=1x2 rows=2 stages=2 splits=2"),
        ((48, 192), 0.5, 12, "a100", "bitmap cols=16 warps=2x1 rows=1 stages=3 splits=1"),
    ],
)
def test_the_mean_of_twenty_matrices(shape: tuple[int, int], sparsity: float, n: int, device: str, line: str) -> None:
    """What the weights decide, within 3 %; of conflicts, which few matrices of this size have, a mean is not sharper
    than its own deviation."""
    pairs = [both(sg.spmm(sg.sparse(weights(*shape, sparsity, "f16", seed)), n=n), line, device) for seed in range(20)]
    for name in loose(device):
        found, wanted = (np.array([side.get(name, 0) for side in sides]) for sides in zip(*pairs, strict=True))
        slack = 3 * wanted.std() / np.sqrt(len(wanted)) if name == "conflicts.shared" else 0
        assert abs(found.mean() - wanted.mean()) <= 0.03 * wanted.mean() + slack, (name, found.mean(), wanted.mean())


@pytest.mark.parametrize(("rows", "cols"), [(16, 64), (13, 57)])
@pytest.mark.parametrize("kept", [0.42, 0.5, 0.6, 0.8])
def test_conflicts_of_drawn_tiles(kept: float, rows: int, cols: int) -> None:
    """The chance that is worked out, against lanes' addresses in tiles that are drawn."""
    tiles = 3000
    bits = np.random.default_rng(4).random((tiles, 2, 8, 4, 4, 4)) < kept  # row g + 8 h, fragment f, lane t, column j
    h, g, f, t, j = np.indices(bits.shape[1:])
    bits &= (g + 8 * h < rows) & (16 * f + 4 * t + j < cols)
    upper, lower = (half.sum(axis=-1).transpose(0, 2, 1, 3).reshape(tiles, 128) for half in (bits[:, 0], bits[:, 1]))
    begins = np.cumsum(upper + lower, axis=1) - upper - lower
    found = np.zeros(tiles)
    for at in (begins, begins + upper):
        taken, least = wavefronts((at // 4 * 8).reshape(-1, 32), 8)
        found += 2 * (taken - least).reshape(tiles, 4).sum(axis=1)
    assert abs(tile_conflicts(kept, rows, cols) - found.mean()) <= 4 * found.std() / np.sqrt(tiles) + 1e-3


def test_the_density_follows_from_the_chunks() -> None:
    for sparsity in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
        for shape in ((512, 512), (500, 333)):
            w = matrix(*shape, sparsity)
            found = density(Problem.of(sg.spmm(w, n=1)))
            assert found == pytest.approx(w.nnz / (shape[0] * shape[1]), rel=0.02, abs=1e-6)


def test_large_products_are_counted_at_once() -> None:
    """As many chunks as a tenth of the weights, and a share of them an SM: what the emulator would take hours for."""
    m, k, n = 28672, 8192, 16
    tiles, taken = m // 16 * (k // 64), m * k // 10
    p = Problem(m, k, n, "f16", 8 * taken + 144 * tiles, taken, tuple(106 * r + 4 for r in range(1, 17)), 0)
    s = SpmmSchedule.parse("bitmap mma=f16.m16n8k16 cols=16 warps=2x8 rows=7 stages=2 splits=1")
    epilogue = sg.spmm(matrix(16, 64), n=n).epilogue
    found = counts(p, epilogue, s, load_profile("h200"), Orders(vec=8))
    assert found["mma.f16.m16n8k16"] == 2 * 4 * tiles
    assert found["bytes.global.write"] == 2 * m * n
    assert found["bytes.bulk"] == pytest.approx(p.nbytes, rel=0.03)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("bitmap mma=f16.m16n8k16 cols=8 warps=1x1 rows=1 stages=2 splits=2", "splits=2, but W has 1 slab"),
        ("bitmap cols=8", "the cost model has to choose the rest"),
        ("dense", "it is a library's product"),
    ],
)
def test_what_has_no_counts_is_refused(line: str, says: str) -> None:
    product = sg.spmm(matrix(64, 64), n=8)
    with pytest.raises(ScheduleError, match=says):
        counts(Problem.of(product), product.epilogue, SpmmSchedule.parse(line), DEVICES["h200"], Orders())
