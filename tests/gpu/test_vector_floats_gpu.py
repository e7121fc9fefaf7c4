"""Products of floats in vectors on a GPU from Ampere on, against f64: both types, all sizes, orders and schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.products.vectors import numbers, places, tasks, values
from tests.gpu.torch_kit import agrees, agrees_with_epilogues, as_on_the_emulator, ready
from tests.vectors_kit import floats

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")]
#: Where tensors live, and what multiplies.
WHERE, BACKEND = "cuda", "cuda"
KINDS = ("f16", "bf16")
#: Words of schedules: parts of a strip that come one after the other, warps without tasks, rings, rows that are cut.
STRIPS = ("lists=1 warps=32 unroll=1 parts=4", "lists=5 warps=16 unroll=2 parts=3", "lists=9 warps=8 unroll=4 parts=2",
          "lists=2 warps=1 unroll=3 parts=1", "lists=3 warps=8 unroll=2 parts=4 cut=2")  # fmt: skip
GATHERS = ("warps=1x1 stages=8", "warps=4x2 stages=4", "warps=1x4 stages=2", "warps=8x1 stages=2 cut=2",
           "warps=2x2 stages=4 cut=1")  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def torch() -> Any:
    return ready(at_least=(8, 0))


def there(torch: Any, a: Any) -> Any:
    """An array of the host of 16 bits as a tensor."""
    return torch.from_numpy(np.ascontiguousarray(a).view("i2")).to(WHERE).view(getattr(torch, a.dtype.name))


def compiled(w: Any, n: int, line: str = "auto", **how: Any) -> Any:
    return sg.compile(sg.spmm(w, n=n, **how), backend=BACKEND, schedule=line)


@pytest.mark.parametrize("n", [1, 7, 16, 100, 513])
@pytest.mark.parametrize("kind_", KINDS)
def test_sizes(torch: Any, kind_: str, n: int) -> None:
    for shape, kept in (((1, 1), 8), ((8, 32), 0.3), ((70, 90), 0.7), ((1001, 777), 0.05), ((4096, 1500), 0.5)):
        agrees(torch, compiled(floats(shape, kind_, kept=kept, seed=n), n))
    for height, format in ((4, "sr_bcrs"), (2, "bcrs")):
        agrees(torch, compiled(floats((263, 517), kind_, height, seed=n, format=format), n))


@pytest.mark.parametrize("kept", [0.0, 100.0])
def test_no_vector_and_all_of_them(torch: Any, kept: float) -> None:
    w = floats((264, 900), kept=kept, seed=5)
    assert (w.nnz == 0) == (kept == 0)
    agrees(torch, compiled(w, 64))


def test_long_rows_beside_empty_ones(torch: Any) -> None:
    """One vector row has everything, most have nothing, and the others have loads of all sizes."""
    rng = np.random.default_rng(2)
    w, loads = rng.uniform(-1, 1, (1600, 2000)).astype("f2"), rng.random((200, 1)) ** 8
    loads[0], loads[1:100] = 1, 0
    w[(rng.random((200, 2000)) >= loads).repeat(8, 0)] = 0
    for n in (16, 200):
        agrees(torch, compiled(sg.sparse(w, format="sr_bcrs", height=8), n))


@pytest.mark.parametrize("wide", [32, 64, 128])
@pytest.mark.parametrize("kind_", KINDS)
@pytest.mark.parametrize("family", ["vector_strip", "vector_gather"])
def test_schedules(torch: Any, family: str, kind_: str, wide: int) -> None:
    for at, words in enumerate(STRIPS if family == "vector_strip" else GATHERS):
        n = (48, 200)[at % 2]
        try:
            agrees(torch, compiled(floats((777, 1000), kind_, seed=n), n, f"{family} wide={wide} {words}"))
        except sg.ScheduleError as e:  # many warps of many registers
            assert "fit" in str(e)


def test_more_columns_than_a_strip_has_rows(torch: Any) -> None:
    """Also more than 16 bits number."""
    for k in (20000, 70000):
        agrees(torch, compiled(floats((200, k), kept=0.05, seed=k), 40))


@pytest.mark.parametrize("activation", [None, "gelu", "silu", "relu"])
@pytest.mark.parametrize("kind_", KINDS)
def test_orders_and_epilogues(torch: Any, kind_: str, activation: Any) -> None:
    """Pairs of columns of y and single ones, with a residual and without."""
    agrees_with_epilogues(torch, compiled, floats((391, 600), kind_), activation)


@pytest.mark.parametrize("line", ["vector_strip", "vector_gather"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_reaches_only_rows_that_read_it(torch: Any, bad: float, line: str) -> None:
    w, x = floats((640, 450), kept=0.2, seed=4), torch.rand((450, 64), device=WHERE).half()
    x[[0, 70, 200], [1, 33, 60]] = bad
    read = (there(torch, w.to_dense()).reshape(80, 8, 450) != 0).any(1)
    reached = (read.double() @ (~x.isfinite()).double() > 0).repeat_interleave(8, 0)
    y = compiled(w, 64, line)(x)
    assert bool(reached.any()) and not bool(reached.all()) and torch.equal(~y.isfinite(), reached)


@pytest.mark.parametrize("height", [8, 2])
@pytest.mark.parametrize("kind_", KINDS)
def test_a_matrix_of_torch_is_packed_where_it_is(torch: Any, kind_: str, height: int) -> None:
    """The same bytes as on the host, and the same result."""
    host = floats((333, 1100), kind_, height, seed=height)
    made = sg.sparse(there(torch, host.to_dense()), format="sr_bcrs", height=height)
    assert made.library.name == "torch" and made.nnz == host.nnz
    for pack in (values, numbers, lambda w: places(w, 64)):
        mine, theirs = pack(made), np.asarray(pack(host))
        assert np.array_equal(mine.cpu().numpy().view(theirs.dtype), theirs)
    records = [tasks(w, 5, 8, 4, 2) for w in (made, host)]
    assert all(np.array_equal(a, b) for a, b in zip(*records, strict=True))
    agrees(torch, compiled(made, 96))


def test_beside_the_dense_product(torch: Any) -> None:
    """What the model chooses where W was made with format="auto", and the library's own product by name."""
    for kept in (0.3, 100.0):
        w = sg.sparse(floats((1024, 1024), kept=kept).to_dense(), format="auto", height=8)
        for line in ("auto", "dense"):
            agrees(torch, compiled(w, 128, line))


@pytest.mark.parametrize("line", ["vector_strip", "vector_gather"])
def test_as_on_the_emulator(line: str) -> None:
    as_on_the_emulator(floats((100, 190), kept=2.0, seed=6), 40, line)
