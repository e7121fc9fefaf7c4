"""Products with dense tiles and other entries on a GPU from Ampere on: tiles, sizes, orders, matrices of torch, streams
and graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench.generated import clustered
from sparsegen.products.hybrid import columns, records, spans, tiles
from tests.gpu.torch_kit import agrees, agrees_with_epilogues, as_on_the_emulator, biased_same_on_streams, ready
from tests.mixed_kit import line, matrix, values
from tests.reordering.matrices import dense

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")]
LARGE = 1500


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(8, 0))


def compiled(w: Any, n: int, line: str = "", **epilogue: Any) -> Any:
    return sg.compile(sg.spmm(w, n=n, **epilogue), backend="cuda", schedule=f"hybrid {line}".strip())


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("tile", [16, 32, 64])
def test_sizes(torch: Any, tile: int, dtype: str) -> None:
    """Nothing that anything divides; columns from one on; no spills."""
    w = matrix(LARGE + 1, 777, tile, dtype)
    for n in (1, 8, 17, 200):
        k = compiled(w, n, bias=True)
        agrees(torch, k)
        assert k.resources().spills == 0


@pytest.mark.parametrize("high", [1, 2])
@pytest.mark.parametrize("warps", ["1x1", "1x4", "2x1", "2x4"])
@pytest.mark.parametrize("tile", [32, 64])
def test_warps(torch: Any, tile: int, warps: str, high: int) -> None:
    """Slots that go round, a last block of columns that is short, and a last band of which a tile is missing."""
    for cols, stages, unroll in ((64, 2, 1), (64, 3, 4), (128, 4, 2)):
        if high * cols * tile // (int(warps[0]) * int(warps[2])) <= 32 * 64:
            words = f"high={high} cols={cols} warps={warps} mma=sync slices=1 stages={stages} unroll={unroll}"
            agrees(torch, compiled(matrix(LARGE, 1300, tile), 3 * cols - 8, words))


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("slices", [2, 4, 8])
@pytest.mark.parametrize("tile", [32, 64])
def test_slices(torch: Any, tile: int, slices: int, dtype: str) -> None:
    """Sets of warps that share k, or turns: the same bits every time."""
    w = matrix(LARGE, 1300, tile, dtype, long=1)
    cases = [(32, 32, "2x1", 1), (88, 64, "2x2", 64 // tile), (128, 64, "4x1", 64 // tile)]
    for n, cols, warps, high in cases[: 1 if slices == 8 else 3]:  # of 1024 threads each has too few registers
        kernel = sg.compile(sg.spmm(w, n=n), backend="cuda", schedule=line(cols, warps, 2, 2, high, slices))
        agrees(torch, kernel)
        assert kernel.resources().spills == 0


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("slices", [1, 2, 4])
@pytest.mark.parametrize("tile", [16, 32, 64])
def test_warpgroups(torch: Any, tile: int, slices: int, dtype: str) -> None:
    """Bands of 16 to 128 rows, one to four products side by side, parts of turns and whole ones; rows that are cut."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("no warpgroups")
    w = matrix(LARGE, 1300, tile, dtype, long=1)
    for n, cols, warps, high in ((64, 64, "1x4", 1), (201, 128, "1x8", 128 // tile % 8 or 4), (512, 256, "1x4", 1)):
        groups = int(warps[2:]) // 4
        if high * tile * cols // (128 * groups) <= 64 and groups * slices * 4 <= min(16, high * tile):
            kernel = sg.compile(
                sg.spmm(w, n=n), backend="cuda", schedule=line(cols, warps, 2, 2, high, slices, "wgmma")
            )
            agrees(torch, kernel)
            assert kernel.resources().spills == 0


def test_warpgroups_as_on_the_emulator(torch: Any) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("no warpgroups")
    as_on_the_emulator(matrix(200, 300), 72, line(64, "1x4", slices=2, mma="wgmma"))


@pytest.mark.parametrize(("delta", "noise"), [(1.0, 0.02), (0.0, 0.01), (0.3, 0.0)])
def test_either_part_may_be_empty(torch: Any, delta: float, noise: float) -> None:
    agrees(torch, compiled(matrix(LARGE, 700, 32, delta=delta, noise=noise), 72))


def test_clusters_with_noise(torch: Any) -> None:
    mask = dense(clustered(2048, 2048, group=64, blocks=6, fill=0.6, noise=0.01))
    w = np.where(mask != 0, np.random.default_rng(0).uniform(-1, 1, mask.shape), 0).astype("f2")
    W: Any = sg.sparse(w, format="hybrid", tile=32)
    assert W.tiles > 300 and W.rest > 10000
    for n in (32, 128, 512):
        agrees(torch, compiled(W, n))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues_and_orders(torch: Any, activation: Any) -> None:
    agrees_with_epilogues(torch, compiled, matrix(700, 512), activation)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any, dtype: str) -> None:
    """The same bytes as on the host, and the same result."""
    w = torch.from_numpy(values(300, 500).astype("f4")).to({"f16": torch.float16, "bf16": torch.bfloat16}[dtype])
    here, there = (sg.sparse(a, format="hybrid", tile=32) for a in (w, w.cuda()))
    assert tiles(there, 2).is_cuda
    for pack in (spans, records, columns):
        assert np.array_equal(pack(here, 2), pack(there, 2))
    assert torch.equal(tiles(here, 2).view(torch.int32), tiles(there, 2).cpu().view(torch.int32))
    words = "high=2 cols=32 warps=1x2 mma=sync slices=1 stages=3 unroll=2"
    assert torch.equal(*(agrees(torch, compiled(one, 40, words)) for one in (there, here)))


def test_as_on_the_emulator() -> None:
    as_on_the_emulator(matrix(200, 300), 24, line(high=2))


def test_streams_and_graphs(torch: Any) -> None:
    biased_same_on_streams(torch, compiled(matrix(LARGE, 512), 64, bias=True))


@pytest.mark.parametrize("long", [0, 1])
@pytest.mark.parametrize("tile", [16, 32, 64])
def test_f32(torch: Any, tile: int, long: int) -> None:
    """As right as f32, which tf32 is not, also where all tiles of a long band are dense; a row is cut, or none."""
    for m, k, noise in ((LARGE + 1, 777, 0.02), (256, 8192, 0.4)):
        w = matrix(m, k, tile, "f32", noise=noise, long=long)
        dense = torch.from_numpy(w.to_dense()).cuda().double()
        for n in (1, 17, 200):
            kernel = compiled(w, n)
            x = 2 * torch.rand((k, n), device="cuda") - 1
            y, want = kernel(x), dense @ x.double()
            assert (y.double() - want).norm() / want.norm() < 3e-6
            assert torch.equal(y, kernel(x)) and kernel.resources().spills == 0
    agrees_with_epilogues(torch, compiled, matrix(700, 512, tile, "f32", long=long), "gelu")


def test_f32_as_on_the_emulator() -> None:
    as_on_the_emulator(matrix(200, 300, dtype="f32"), 24, line(high=2))


@pytest.mark.parametrize("tile", [16, 32, 64])
def test_tf32(torch: Any, tile: int) -> None:
    """Within 1e-3 of f64, and not the f32 that it is told not to be; a matrix on the GPU is packed there."""
    w = torch.from_numpy(values(700, 512, tile).astype("f4")).cuda()
    for n in (8, 100, 256):
        kernel = sg.compile(sg.spmm(sg.sparse(w, format="hybrid", tile=tile), n=n, precision="tf32"), backend="cuda")
        x = 2 * torch.rand((512, n), device="cuda") - 1
        want = w.double() @ x.double()
        off = (kernel(x).double() - want).norm() / want.norm()
        assert 1e-6 < off < 1e-3 and kernel.resources().spills == 0
