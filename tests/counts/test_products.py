"""Counts of products: those of whole runs, and of large matrices an estimate where the places of the zeros decide."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

import sparsegen as sg
from sparsegen.arrays import describe
from sparsegen.calls.product import variant
from sparsegen.cost.devices import DeviceProfile, load_profile
from sparsegen.counts import launch, of_program
from sparsegen.families.spmm.bitmap import FAMILY
from sparsegen.ir.errors import ScheduleError
from sparsegen.pipelines import Program, lower
from sparsegen.problems.product import SpmmProblem
from sparsegen.products.geometry import COLUMNS, legal
from sparsegen.products.product import BitmapNumbers, Product
from sparsegen.products.weights import host_arrays
from sparsegen.schedule import SpmmSchedule
from tests import mixed_kit, nm_kit
from tests.counts.kit import whole, wrong
from tests.csr_kit import ragged
from tests.products_kit import matrix, operands

BITMAP = SpmmSchedule("bitmap")
#: Few SMs, so that runs of strips are long in small matrices; one copies in bulk, the other by cp.async.
DEVICES = {name: dataclasses.replace(load_profile(name), sms=5) for name in ("h200", "a100")}
#: What the weights have a say in, and where copies go by cp.async.
OF_WEIGHTS = {"bytes.bulk", "wavefronts.shared", "conflicts.shared"}
OF_COPIES = {"cp_async", "cp_async.shared", "wavefronts.cp_async", "bytes.global.read", "bytes.shared.write",
             "sectors.global.read"}  # fmt: skip


def program(product: Product, s: SpmmSchedule, device: DeviceProfile, x: str = "row", y: str = "row") -> Program:
    """The kernel for arrays in these orders."""
    given = operands(product, x, y)
    return lower(SpmmProblem(product), s, device, 1, variant(describe(given["x"]), describe(given["out"]), copied=True))


def drawn(seed: int) -> tuple[Product, Program]:
    """A random product with a random kernel."""
    draw = random.Random(seed)
    while True:
        m, k = draw.choice(
            [(draw.randint(1, 140), draw.randint(1, 300)), (16 * draw.randint(1, 9), 64 * draw.randint(1, 4))]
        )
        one = draw.random() < 0.2
        n = 1 if one else draw.choice([1, draw.randint(1, 70), 8 * draw.randint(1, 8)])
        dtype, device = draw.choice(["f16", "bf16"]), DEVICES[draw.choice(sorted(DEVICES))]
        act: Any = draw.choice([None, "relu", "gelu", "silu"])
        bias, scale, residual = (draw.random() < 0.4 for _ in range(3))
        w = matrix(m, k, draw.choice([0.0, 0.3, 0.5, 0.6, 0.9, 1.0]), dtype)
        product = sg.spmm(w, n=n, bias=bias, scale=scale, residual=residual, activation=act)
        mma, cols = ("none", 1) if one else (f"{dtype}.m16n8k16", draw.choice(COLUMNS))
        warps = draw.randint(1, 4), draw.randint(1, 4)
        s = SpmmSchedule("bitmap", mma, cols, warps, draw.randint(1, 5), draw.randint(2, 5), draw.choice([1, 1, 2, 3]))
        try:
            legal(BitmapNumbers.of(product), s, device)
        except ScheduleError:
            continue
        return product, program(product, s, device, *(draw.choice(["row", "column"]) for _ in range(2)))


@pytest.mark.parametrize("part", range(2))
def test_random_cases(part: int) -> None:
    for seed in range(7 * part, 7 * part + 7):
        product, made = drawn(seed)
        assert not wrong(made, host_arrays(product.w, FAMILY.arrays(BITMAP))), (seed, str(product))


@pytest.mark.parametrize(
    ("line", "n", "pattern", "dtype"),
    [
        ("nm_lanes cols=1 warps=1x4", 1, (8, 32), "f16"),
        ("nm_lanes cols=2 warps=2x2", 5, (3, 10), "f32"),
        ("nm_lanes cols=4 warps=3x1", 4, (48, 64), "bf16"),  # reads of x have conflicts
    ],
)
def test_products_with_n_of_m(line: str, n: int, pattern: tuple[int, int], dtype: str) -> None:
    product, s = sg.spmm(nm_kit.matrix(150, 333, *pattern, dtype=dtype), n=n, bias=True), SpmmSchedule.parse(line)
    given = host_arrays(product.w, s.rules.arrays(s))
    for orders in (("row", "row"), ("column", "column")):
        made = program(product, s, DEVICES["h200"], *orders)
        (found,) = of_program(made, 1, given)
        assert not wrong(made, given) and not found.sampled
        assert (found.counts["conflicts.shared"] > 0) == (pattern != (8, 32))
        values, offsets = (given[name].nbytes for name in ("values", "offsets"))
        across = -(-n // s.cols)
        assert found.counts["bytes.global.read"] >= across * (values + offsets)


@pytest.mark.parametrize("orders", [("row", "row"), ("column", "row"), ("row", "column")])
def test_gathered_rows(orders: tuple[str, str]) -> None:
    """Of blocks that have a tile more than others, with and without a launch that turns x: as the emulator counts."""
    product = sg.spmm(nm_kit.matrix(300, 333, 8, 32, (64, 1)), n=40, bias=True)
    s = SpmmSchedule.parse("nm_gather rows=64 cols=16 stages=3")
    given = host_arrays(product.w, s.rules.arrays(s))
    made = program(product, s, dataclasses.replace(DEVICES["h200"], sms=4, max_blocks_sm=1), *orders)
    found = of_program(made, 1, given)
    assert not wrong(made, given) and len(found) == (2 if orders[0] == "column" else 1)
    walked, turns = found[-1].counts, 5 * 3 * 2
    assert walked["cp_arrive"] == 4 * turns and walked["wgmma.f16.m64n16k16"] == 4 * 4 * turns
    assert walked["bytes.bulk"] == turns * 64 * 64 * 2 + 5 * 3 * 2 * 64 * 2  # tiles of W, and lists
    assert walked["bytes.global.read"] >= turns * 64 * 16 * 2  # rows of x


@pytest.mark.parametrize("orders", [("row", "row"), ("column", "row"), ("row", "column")])
def test_decoded_tiles(orders: tuple[str, str]) -> None:
    """Of blocks that have a tile more than others; x by columns is not turned: as the emulator counts."""
    product = sg.spmm(nm_kit.matrix(300, 328, 8, 32), n=40, bias=True)
    s = SpmmSchedule.parse("nm_decode rows=64 cols=16 stages=3 teams=2")
    given = host_arrays(product.w, s.rules.arrays(s))
    made = program(product, s, dataclasses.replace(DEVICES["h200"], sms=4, max_blocks_sm=1), *orders)
    (found,) = of_program(made, 1, given)
    assert not wrong(made, given)
    counts, turns = found.counts, 5 * 3 * 6
    assert counts["wgmma.f16.m64n16k16"] == 4 * 4 * turns and counts["bytes.tensor"] == 5 * 328 * 40 * 2
    assert counts["bytes.bulk"] == 3 * given["entries"].nbytes == turns * 128 * (4 + 2) * 4  # 8 entries of each lane


@pytest.mark.parametrize("layout", ["offsets", "windows"])
def test_windows_of_lanes(layout: str) -> None:
    """As the emulator counts; conflicts only of x as it is."""
    product = sg.spmm(nm_kit.matrix(150, 1333, 8, 32, dtype="f32"), n=5, bias=True)
    s = SpmmSchedule.parse(f"nm_windows cols=4 warps=4 layout={layout}")
    given = host_arrays(product.w, s.rules.arrays(s))
    for orders in (("row", "row"), ("column", "column")):
        made = program(product, s, DEVICES["h200"], *orders)
        (found,) = of_program(made, 1, given)
        assert not wrong(made, given) and (found.counts["conflicts.shared"] > 0) == (layout == "windows")
        assert found.counts["shfl"] == 20 * 4 * (5 * 4 * 4 + 1)  # blocks, warps, a sum of each row and column


@pytest.mark.parametrize("orders", [("row", "row"), ("column", "column")])
def test_outer_products(orders: tuple[str, str]) -> None:
    """Tiles and turns that are short, with and without a launch that turns x: as the emulator counts."""
    product = sg.spmm(nm_kit.matrix(150, 333, 8, 32, (16, 1), "f32"), n=40, bias=True)
    s = SpmmSchedule.parse("nm_outer rows=64 cols=32 each=4 deep=64 stages=3")
    given = host_arrays(product.w, s.rules.arrays(s))
    made = program(product, s, DEVICES["h200"], *orders)
    found = of_program(made, 1, given)
    assert not wrong(made, given) and len(found) == (2 if orders[0] == "column" else 1)
    counts, tiles, entries = found[-1].counts, 3 * 2, 6 * 16
    assert 32 * counts["fma.f32"] == tiles * entries * 64 * 32 and not counts["conflicts.shared"]
    assert counts["bytes.shared.write"] == tiles * (333 * 32 + 6 * (16 * 64 + 4 * 16)) * 4  # x's windows, values, lists


def test_kept_fours() -> None:
    """Of blocks that have a tile more than others: as the emulator counts."""
    product = sg.spmm(nm_kit.matrix(300, 333, 2, 4), n=40, bias=True)
    s = SpmmSchedule.parse("nm_24 rows=64 cols=16 stages=3")
    given = host_arrays(product.w, s.rules.arrays(s))
    made = program(product, s, dataclasses.replace(DEVICES["h200"], sms=4, max_blocks_sm=1))
    (found,) = of_program(made, 1, given)
    assert not wrong(made, given)
    walked, turns = found.counts, 5 * 3 * 6
    assert walked["bytes.tensor"] == 5 * 333 * 40 * 2 and walked["wgmma_sp.f16.m64n16k32"] == 2 * 4 * turns
    assert walked["bytes.bulk"] == turns * (64 * 32 * 2 + 128 * 4)  # kept elements, and their words


@pytest.mark.parametrize("device", ["a100", "h200"])
def test_strips(device: str) -> None:
    """Of blocks that have a tile more than others: as the emulator counts, and as strips and turns say."""
    product = sg.spmm(nm_kit.matrix(190, 333, 8, 32, (32, 1)), n=40, bias=True)
    s = SpmmSchedule.parse("nm_strips strip=32 warps=2x1 cols=32 kept=16 stages=3")
    given = host_arrays(product.w, s.rules.arrays(s))
    made = program(product, s, dataclasses.replace(DEVICES[device], sms=4, max_blocks_sm=1))
    (found,) = of_program(made, 1, given)
    turns = 3 * 2 * 6  # tiles, and turns of two windows
    assert not wrong(made, given) and not found.sampled
    assert found.counts["mma.f16.m16n8k16"] == turns * 2 * 2 * 4  # warps, rows and columns of a fragment
    assert found.counts["ldmatrix"] == turns * 2 * 2
    copied = 2 * (
        given["rows"].size * 32 * 2 + given["values"].nbytes + given["places"].nbytes
    )  # two blocks of columns
    assert found.counts["bytes.global.read"] >= copied


@pytest.mark.parametrize(("device", "slices"), [("a100", 1), ("h200", 1), ("h200", 2)])
def test_dense_tiles_and_other_entries(device: str, slices: int) -> None:
    """Of bands with other numbers of both: as the emulator counts, and as tiles say, whoever takes which k."""
    product = sg.spmm(mixed_kit.matrix(190, 333), n=40, bias=True)
    s = SpmmSchedule.parse(mixed_kit.line(warps="2x1", slices=slices))
    given = host_arrays(product.w, s.rules.arrays(s))
    made = program(product, s, DEVICES[device])
    (found,) = of_program(made, 1, given)
    turns = 2 * product.w.tiles
    assert not wrong(made, given)
    assert found.counts["mma.f16.m16n8k16"] == turns * 2 * 2 * 4 and found.counts["ldmatrix"] == turns * 2 * 2 * 2


@pytest.mark.parametrize(("cols", "slices"), [(64, 1), (64, 4), (128, 1)])
def test_dense_tiles_by_warpgroups(cols: int, slices: int) -> None:
    """Of each turn two products along k, of 64 columns each, all four warps of whom take part."""
    product = sg.spmm(mixed_kit.matrix(190, 333), n=120, bias=True)
    s = SpmmSchedule.parse(mixed_kit.line(cols, "1x4", slices=slices, mma="wgmma"))
    given = host_arrays(product.w, s.rules.arrays(s))
    made = program(product, s, DEVICES["h200"])
    (found,) = of_program(made, 1, given)
    assert not wrong(made, given)
    assert found.counts["wgmma.f16.m64n32k16"] == 2 * product.w.tiles * 2 * 4 and "ldmatrix" not in found.counts


@pytest.mark.parametrize("device", ["a100", "h200"])
def test_tiles_and_then_rows(device: str) -> None:
    """Of both launches as the emulator counts, and as tiles say, be it one that fills a block row up."""
    product = sg.spmm(mixed_kit.matrix(190, 333, delta=0.4, format="blocked_ell"), n=40, bias=True)
    words = "cols=32 warps=2x1 stages=3 team=4x2 columns=8 unroll=2 cut=16"
    s = SpmmSchedule.parse(f"blocked_ell {words}")
    given = host_arrays(product.w, s.rules.arrays(s))
    made = program(product, s, DEVICES[device])
    first, second = of_program(made, 1, given)
    turns = 2 * (product.w.tiles + product.w.filling)
    assert product.w.filling and not wrong(made, given)
    assert first.counts["mma.f16.m16n8k16"] == turns * 2 * 2 * 4 and "fma.f32" not in first.counts
    assert second.counts["fma.f32"] and "mma.f16.m16n8k16" not in second.counts


@pytest.mark.parametrize("device", ["a100", "h200"])
def test_rows_against_strips(device: str) -> None:
    """As the emulator counts, and as turns say: a warp takes as many as its busiest team has."""
    product = sg.spmm(sg.sparse(ragged(190, 333, 9).toarray().astype("f4"), format="csr"), n=40, bias=True)
    s = SpmmSchedule.parse("csr_strip wide=64 lists=3 warps=2 groups=1 unroll=4")
    given = host_arrays(product.w, s.rules.arrays(s))
    made = program(product, s, DEVICES[device])
    (found,) = of_program(made, 1, given)
    records = given["records"].reshape(3, -1, 2, 8, 4)  # lists, rows of a team, warps, teams of a warp
    turns = (records[..., 2] - records[..., 1]).max(axis=-1).sum() // 4
    assert not wrong(made, given) and found.counts["fma.f32"] == 3 * turns * 4 * 4


@pytest.mark.parametrize(
    ("shape", "sparsity", "n", "device", "line"),
    [
        ((2041, 512), 0.3, 8, "h200", "bitmap mma=f16.m16n8k16 cols=8 warps=2x2 rows=2 stages=2 splits=1"),
        ((2048, 500), 0.6, 1, "a100", "bitmap mma=none cols=1 warps=1x2 rows=1 stages=2 splits=2"),
        ((2048, 512), 0.5, 12, "a100", "bitmap mma=f16.m16n8k16 cols=16 warps=2x1 rows=1 stages=3 splits=1"),
    ],
)
def test_samples(
    shape: tuple[int, int], sparsity: float, n: int, device: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix that counts as a large one: within 3 %, and exact where the weights decide nothing."""
    monkeypatch.setattr(launch, "WHOLE", 1 << 16)
    monkeypatch.setattr(launch, "SAMPLE", 1 << 18)
    product = sg.spmm(matrix(*shape, sparsity), n=n)
    made = program(product, SpmmSchedule.parse(line), dataclasses.replace(DEVICES[device], sms=40))
    (found,) = of_program(made, 1, given := host_arrays(product.w, FAMILY.arrays(BITMAP)))
    (want,) = whole(made, given).values()
    loose = OF_WEIGHTS | (OF_COPIES if device == "a100" else set())
    assert found.sampled and found.sampled <= loose
    for name, count in want.items():
        slack = 0.03 * want["wavefronts.shared" if name == "conflicts.shared" else name]
        assert abs(found.counts.get(name, 0) - count) <= (slack if name in found.sampled else 0), name


def test_a_call() -> None:
    k = sg.compile(sg.spmm(matrix(512, 512, 0.6), n=16), device="h200", backend="emulator")
    counts = k.counts()
    assert counts.steps == 0 and not counts.sampled and "(sampled)" not in str(counts)
    assert counts["bytes.global.write"] == 2 * 512 * 16


def test_a_large_matrix() -> None:
    product = sg.spmm(matrix(8192, 4096, 0.99), n=8)
    counts = sg.compile(product, device="h200", backend="emulator").counts()
    assert "bytes.bulk" in counts.sampled and "(sampled)" in str(counts)
    assert counts["bytes.global.write"] == 2 * 8192 * 8
    assert product.w.nbytes < counts["bytes.bulk"] < 1.1 * product.w.nbytes  # whole pairs of chunks
