"""Products in Blocked-ELL and compressed rows on a GPU from Ampere on: tiles, sizes, orders, matrices of torch, streams
and graphs; beside hybrid they have other bits, but the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.products.blocked_ell import columns, records, segments, spans, tiles
from tests import mixed_kit
from tests.gpu.torch_kit import agrees, agrees_with_epilogues, as_on_the_emulator, biased_same_on_streams, kind, ready

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")]
LARGE = 1500


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(8, 0))


def matrix(*shape: Any, **how: Any) -> Any:
    return mixed_kit.matrix(*shape, format="blocked_ell", **how)


def compiled(w: Any, n: int, line: str = "", **epilogue: Any) -> Any:
    return sg.compile(sg.spmm(w, n=n, **epilogue), backend="cuda", schedule=f"blocked_ell {line}".strip())


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("tile", [16, 32, 64])
def test_sizes(torch: Any, tile: int, dtype: str) -> None:
    """Nothing that anything divides; columns from one on; long rows that are cut; no spills."""
    w = matrix(LARGE + 1, 777, tile, dtype, delta=0.4, long=2)
    assert w.filling and w.rest
    for n in (1, 8, 17, 200):
        k = compiled(w, n, bias=True)
        agrees(torch, k)
        assert k.resources().spills == 0


@pytest.mark.parametrize(("delta", "noise"), [(1.0, 0.02), (0.0, 0.0), (0.3, 0.0)])
def test_either_part_may_be_empty(torch: Any, delta: float, noise: float) -> None:
    agrees(torch, compiled(matrix(LARGE, 700, 32, delta=delta, noise=noise), 72))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_epilogues_and_orders(torch: Any, activation: Any) -> None:
    agrees_with_epilogues(torch, compiled, matrix(700, 512), activation)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any, dtype: str) -> None:
    """The same bytes as on the host, and the same result."""
    w = torch.from_numpy(mixed_kit.values(300, 500).astype("f4")).to(kind(torch, dtype))
    here, there = (sg.sparse(a, format="blocked_ell", tile=32) for a in (w, w.cuda()))
    there.check()
    assert tiles(there).is_cuda
    for pack in (spans, records, columns):
        assert np.array_equal(pack(here), pack(there))
    assert np.array_equal(segments(here, 64, 4, 16), segments(there, 64, 4, 16))
    assert torch.equal(tiles(here).view(torch.int32), tiles(there).cpu().view(torch.int32))
    line = "cols=32 warps=1x2 stages=3 team=4x2 columns=8 unroll=2 cut=64"
    assert torch.equal(*(agrees(torch, compiled(one, 40, line)) for one in (there, here)))


def test_as_on_the_emulator() -> None:
    words = "cols=32 warps=1x2 stages=3 team=4x2 columns=8 unroll=2 cut=16"
    as_on_the_emulator(matrix(200, 300, 32, delta=0.4, long=1), 24, f"blocked_ell {words}")


def test_the_same_bits_every_time(torch: Any) -> None:
    """Streams, graphs, and rows whose pieces meet in any order."""
    biased_same_on_streams(torch, compiled(matrix(LARGE, 512, 32, long=3), 64, bias=True))
