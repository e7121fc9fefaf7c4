"""Wrong products and calls: what is said, at the user's line, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.formats import FORMATS, register
from sparsegen.schedule import SpmmSchedule
from tests.formats import foreign
from tests.products_kit import matrix, weights
from tests.refusals import refusal

M, K, N = 40, 70, 6
W = matrix(M, K)
FULL = sg.spmm(W, n=N, bias=True, residual=True)
PLAIN = sg.spmm(W, n=N)
X, OUT, RESIDUAL = np.ones((K, N), np.float16), np.zeros((M, N), np.float16), np.zeros((M, N), np.float16)
BIAS = np.zeros(M, np.float16)


@pytest.fixture(scope="module")
def plain() -> Any:
    return sg.compile(PLAIN, device="h200", backend="emulator")


@pytest.fixture(scope="module")
def full() -> Any:
    return sg.compile(FULL, device="h200", backend="emulator")


DESCRIBED: list[tuple[Callable[[], object], tuple[str, ...]]] = [
    (lambda: sg.spmm(weights(4, 4, 0.5), n=8), ("spmm needs a sparse matrix, not numpy.ndarray", "W = sg.sparse(w)")),  # type: ignore[arg-type]  # here
    (lambda: sg.spmm(W, n=0), ("n=0: there is nothing to do",)),  # here
    (lambda: sg.spmm(W, n=1.5), ("n=1.5 is not a whole number",)),  # type: ignore[arg-type]  # here
    (lambda: sg.spmm(W, n=4, bias=BIAS), ("bias is a ndarray, it must be True or False", "k(x, bias=...)")),  # type: ignore[arg-type]  # here
    (lambda: sg.spmm(W, n=4, scale=2), ("scale is 2, it must be True or False",)),  # type: ignore[arg-type]  # here
    (lambda: sg.spmm(W, n=4, activation="rely"), ("no activation 'rely'", "did you mean 'relu'")),  # type: ignore[arg-type]  # here
    (lambda: sg.spmm(W, n=2**31), ("x has 70 x 2147483648 elements", "32 bits")),  # here
    (lambda: sg.compile(PLAIN, shape=(M, K)), ("shape=(40, 70) means nothing to a sparse product",)),  # type: ignore[call-overload]  # here
    (lambda: sg.compile(PLAIN, steps=4), ("steps=4 means nothing",)),  # type: ignore[call-overload]  # here
    (lambda: sg.schedules(PLAIN, nonfinite="exact"), ("nonfinite='exact' means nothing",)),  # type: ignore[call-overload]  # here
]


@pytest.mark.parametrize(("attempt", "says"), DESCRIBED)
def test_products_that_cannot_be_described(attempt: Callable[[], object], says: tuple[str, ...]) -> None:
    refusal(__file__, sg.ProductError, attempt, *says)


def test_a_format_without_kernels_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsegen.formats.encode.FORMATS", dict(FORMATS))
    register("blocks", foreign.blocks, ("f16",))
    product = sg.spmm(sg.sparse(weights(M, K, 0.6), format="blocks", rows=8, cols=10), n=8)
    says = ("no schedule reads a blocks matrix", 'sg.sparse(W.to_dense(), format="bitmap")')
    refusal(__file__, sg.FormatError, lambda: sg.compile(product, device="h200", backend="emulator"), *says)  # here


CALLS: list[tuple[Callable[[Any], object], tuple[str, ...]]] = [
    (lambda k: k(X.astype("f4")), ("x has dtype float32, W is f16", "convert it to float16; nothing is cast")),  # here
    (lambda k: k(X[:, :4]), ("x has shape (70, 4), it must be (70, 6)", "compile sg.spmm(W, n=4)")),  # here
    (lambda k: k(X[:60]), ("x has shape (60, 6), it must be (70, 6)", "W is [40, 70] and n=6")),  # here
    (lambda k: k(np.ascontiguousarray(X.T)), ("x has shape (6, 70)", "pass x.T")),  # here
    (lambda k: k(X[:, 0]), ("x has shape (70,), it must be (70, 6)",)),  # here
    (lambda k: k(np.ones((K, 2 * N), "f2")[:, ::2]), ("x has strides (24, 4) (bytes)", "np.ascontiguousarray")),  # here
    (lambda k: k(np.ones((2 * K, N), "f2")[::2]), ("x has strides (24, 2) (bytes)", "without gaps")),  # here
    (lambda k: k(X[::-1]), ("x has strides (-12, 2)",)),  # here
    (lambda k: k([[1.0]]), ("an object of type builtins.list is not an array",)),  # here
    (lambda k: k(X, out=OUT.astype("f4")), ("out has dtype float32",)),  # here
    (lambda k: k(X, out=OUT[:, :5]), ("out has shape (40, 5), it must be (40, 6)",)),  # here
    (lambda k: k(X, bias=BIAS), ("bias is given, but the product was described without", "bias=True")),  # here
    (lambda k: k(X, stream=7), ("stream=7, but this kernel runs on the emulator",)),  # here
    (lambda k: k.check(X[:3]), ("x has shape (3, 6)",)),  # here
    (lambda k: k.bench(X[:3]), ("x has shape (3, 6)",)),  # here
    (lambda k: k.bench(X, repeats=0), ("repeats=0",)),  # here
]


@pytest.mark.parametrize(("attempt", "says"), CALLS)
def test_calls_that_do_not_fit(plain: Any, attempt: Callable[[Any], object], says: tuple[str, ...]) -> None:
    kind = sg.DeviceError if "stream" in says[0] else sg.ProductError if "repeats" in says[0] else sg.ArrayError
    refusal(__file__, kind, lambda: attempt(plain), *says)
    assert not OUT.any()


def test_results_that_cannot_be_written(plain: Any) -> None:
    fixed = np.zeros((M, N), np.float16)
    fixed.flags.writeable = False
    refusal(__file__, sg.ArrayError, lambda: plain(X, out=fixed), "out is read-only")  # here
    both = np.zeros((K + M, N), np.float16)
    refusal(__file__, sg.ArrayError, lambda: plain(both[:K], out=both[K - 1 : -1]), "out shares memory with x")  # here
    assert not both.any()


def test_operands_of_the_epilogue(full: Any) -> None:
    def refused(*says: str, **given: Any) -> None:
        refusal(__file__, sg.ArrayError, lambda: full(X, **given), *says)  # here

    refused("bias is missing: the product was described with bias=True", "of shape (40,)", residual=RESIDUAL)
    refused("residual is missing", bias=BIAS)
    refused("bias has shape (40, 1), it must be (40,)", bias=BIAS[:, None], residual=RESIDUAL)
    refused("bias has strides (4,)", "it must be packed", bias=np.zeros(2 * M, "f2")[::2], residual=RESIDUAL)
    refused("residual has shape (6, 40)", "pass residual.T", bias=BIAS, residual=np.ascontiguousarray(RESIDUAL.T))
    turned = np.zeros((N, M), np.float16).T
    refused("residual is packed by columns, out by rows", "in the order of out", bias=BIAS, residual=turned)
    refused("residual is packed by rows, out by columns", bias=BIAS, residual=RESIDUAL, out=turned)
    refused("out shares memory with residual", bias=BIAS, residual=RESIDUAL, out=RESIDUAL)


SCHEDULES: list[tuple[Any, tuple[str, ...]]] = [
    ("direct", ("'direct' begins a line for stencils and general updates", "sparse products take: bitmap,")),
    ("bitmpa", ("did you mean 'bitmap'",)),
    ("", ("an empty schedule", "start with a family: bitmap")),
    (7, ("schedule=7 is no schedule of sparse products",)),
    ("bitmap colums=8", ("'colums=8'", "means nothing to a bitmap schedule", "did you mean 'cols=…'")),
    ("bitmap rows=2 rows=3", ("'rows=3': rows is given twice",)),
    ("bitmap rows", ("'rows' has no value",)),
    ("bitmap warps=4", ("'warps=4' is not a pair of positive numbers", "such as 32x64")),
    ("bitmap rows=17", ("rows=17 is out of range", "from 1 to 16")),
    ("bitmap stages=1", ("stages=1 is out of range",)),
    ("bitmap cols=12", ("cols=12: a block has 1 column", "8, 16, 32, 64")),
    ("bitmap warps=8x8", ("warps=8x8 are 2048 threads",)),
    ("bitmap mma=f64.m8n8k4", ("unknown mma shape 'f64.m8n8k4'", "bf16.m16n8k16")),
    ("bitmap mma", ("'mma' has no value",)),
    ("bitmap mma=bf16.m16n8k16", ("mma=bf16.m16n8k16 does not multiply f16 weights", "mma=f16.m16n8k16")),
    ("bitmap mma=none", ("mma=none cols=1 is for a single column, not n=6",)),
    ("bitmap cols=1", ("mma=none cols=1 is for a single column, not n=6", "or cols=8")),
    ("bitmap cols=1 mma=f16.m16n8k16", ("cols=1 with mma=f16.m16n8k16: a block has 1 column",)),
    ("bitmap splits=3", ("splits=3, but W has 2 slabs of 64 columns",)),
    ("bitmap cols=64 rows=8", ("registers a thread", "lower rows, cols or warps")),
    ("bitmap warps=2x8 rows=16 stages=8 cols=8", ("bytes of shared memory a block; NVIDIA H200 has 232448",)),
    ("dense rows=2", ("'rows=2' means nothing to a dense schedule",)),
]


@pytest.mark.parametrize(("line", "says"), SCHEDULES)
def test_schedules_that_cannot_be(line: Any, says: tuple[str, ...]) -> None:
    attempt = lambda: sg.compile(PLAIN, device="h200", backend="emulator", schedule=line)  # noqa: E731  # here
    refusal(__file__, sg.ScheduleError, attempt, *says)


def test_schedules_made_by_hand() -> None:
    with pytest.raises(sg.ScheduleError, match="rows=2 means nothing to a dense schedule"):
        SpmmSchedule("dense", rows=2)
    with pytest.raises(sg.ScheduleError, match=r"warps=\(0, 4\)"):
        SpmmSchedule(warps=(0, 4))


def test_a_dense_product_has_no_program_and_takes_no_host_arrays() -> None:
    k = sg.compile(PLAIN, device="h200", backend="emulator", schedule="dense")
    says = "schedule='dense' is the product of torch or CuPy", "as sg.schedules(product) lists them"
    refusal(__file__, sg.ArrayError, lambda: k(X), *says)  # here
    for look in (k.ir, k.source, k.counts, k.check):
        with pytest.raises(sg.ScheduleError, match="the library's own"):
            look()


def test_a_matrix_is_no_product() -> None:
    with pytest.raises(sg.ProductError, match="is a matrix, not a product") as error:
        sg.compile(matrix(16, 64))
    assert "sg.spmm(W" in str(error.value)


def test_masked_x() -> None:
    k = sg.compile(sg.spmm(matrix(16, 64), n=8), backend="emulator")
    with pytest.raises(sg.ArrayError, match="masked"):
        k(np.ma.masked_array(np.ones((64, 8), np.float16), True))
