"""``sg.quantize`` against a slow oracle, number by number, and ``sg.pack4`` against its inverse, in NumPy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sparsegen as sg
from sparsegen.formats import library
from sparsegen.ir.types import DTYPES
from tests.formats.matrices import tensor

torch: Any = pytest.importorskip("torch")

BITS = (4, 8, 12, 16)
KINDS = ("f16", "bf16", "f32", "f64")
NUMBERS = st.floats(-60000, 60000) | st.floats(-1e-6, 1e-6) | st.integers(-300, 300).map(float) | st.just(0.0)
WEIGHTS = hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=6), elements=NUMBERS)


def slow(row: list[float], most: int) -> tuple[list[int], float]:
    """Values and scale of weights that share a scale."""
    top = max(abs(w) for w in row)
    scale = float(np.float32(max(top / most, 2.0**-126))) if top else 1.0
    return [round(w / scale) for w in row], scale  # round() takes halves to even


@given(w=WEIGHTS, kind=st.sampled_from(KINDS), bits=st.sampled_from(BITS), rows=st.booleans())
def test_values_and_scale(w: Any, kind: str, bits: int, rows: bool) -> None:
    """Exactly those of the oracle; half a scale from the weights at most; the same in both libraries, in any order."""
    w = w.astype(DTYPES[kind].numpy())
    before, exact, most = w.copy(), w.astype(np.float64), 2 ** (bits - 1) - 1
    shared = exact.reshape(-1, w.shape[-1]) if rows else exact.reshape(1, -1)
    wanted = [slow(row, most) for row in shared.tolist()]
    scales = np.array([scale for _, scale in wanted], np.float32).reshape(w.shape[:-1] if rows else ())
    for array in (w, np.asfortranarray(w)):
        q = sg.quantize(array, bits, rows=rows)
        assert q.bits == bits and q.values.dtype == (np.int8 if bits <= 8 else np.int16) and q.values.flags.c_contiguous
        assert np.array_equal(q.values, np.reshape([value for values, _ in wanted for value in values], w.shape))
        assert q.scale.dtype == np.float32 and np.array_equal(q.scale, scales) and np.shape(q.scale) == scales.shape
        by = np.float64(q.scale)[..., None] if rows else np.float64(q.scale)
        assert (abs(q.values * by - exact) <= by * (0.5 + 1e-12)).all() and abs(q.values.astype(int)).max() <= most
        t = sg.quantize(tensor(array), bits, rows=rows)
        assert np.array_equal(t.values.numpy(), q.values) and t.values.is_contiguous()
        assert t.values.dtype == getattr(torch, str(q.values.dtype)) and np.array_equal(t.scale.numpy(), scales)
    assert np.array_equal(w.view(f"u{w.itemsize}"), before.view(f"u{w.itemsize}"))


def test_the_sides_are_alike_and_halves_are_even() -> None:
    w = np.array([-127, -126.5, -0.5, 0.5, 1.5, 2.5, 127.0])
    for sign in (1, -1):
        q = sg.quantize(sign * w)
        assert q.scale == 1 and (sign * q.values).tolist() == [-127, -126, 0, 0, 2, 2, 127]
    assert [int(abs(sg.quantize(w, bits).values).max()) for bits in BITS] == [7, 127, 2047, 32767]


def test_zeros_have_scale_1() -> None:
    w = np.array([[0, 0, -0.0], [0, 3, -14]], np.float32)
    q = sg.quantize(w, 4, rows=True)
    assert q.scale.tolist() == [1, 2] and q.values.tolist() == [[0, 0, 0], [0, 2, -7]]
    q = sg.quantize(w[:1])
    assert type(q.scale) is np.float32 and q.scale == 1 and not q.values.any()


@pytest.mark.parametrize("top", [2.0**-149, 1e-40, 1e-300, 127 * 2.0**-126, 127 * float(np.finfo(np.float32).max)])
def test_the_smallest_and_the_largest_scale(top: float) -> None:
    """The scale is a normal number of f32, however small the weights are, and half of it bounds the error."""
    w = np.array([top, -top / 3, 0])
    q = sg.quantize(w)
    assert 2.0**-126 <= q.scale <= np.finfo(np.float32).max
    assert (abs(q.values * np.float64(q.scale) - w) <= np.float64(q.scale) / 2).all()


def test_many_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    w = np.random.default_rng(1).standard_normal((30, 7)).astype(np.float32)
    for rows in (False, True):
        whole = sg.quantize(w, rows=rows)
        with monkeypatch.context() as patch:
            patch.setattr(library, "HOST_BAND", 15)
            q = sg.quantize(w, rows=rows)
        assert np.array_equal(q.values, whole.values) and np.array_equal(q.scale, whole.scale)


def test_parameters_and_other_arrays() -> None:
    layer = torch.nn.Linear(8, 4)
    q = sg.quantize(layer.weight, rows=True)
    assert not q.values.requires_grad and not q.scale.requires_grad and q.scale.shape == (4,)
    w = np.arange(48, dtype=np.float32).reshape(4, 12)
    w.flags.writeable = False
    for view in (w[::2, 1::3], w[::-1], np.broadcast_to(w[0], (4, 12)), w.view(np.matrix)):
        assert np.array_equal(sg.quantize(view).values, np.rint(np.array(view) / sg.quantize(np.array(view)).scale))


FOURS = hnp.arrays(np.int8, st.lists(st.integers(0, 5), max_size=2).map(lambda s: (*s, 6)), elements=st.integers(-8, 7))


@given(x=FOURS)
def test_two_a_byte(x: Any) -> None:
    """The first of a pair in the low half, and the way back."""
    for array in (x, np.asfortranarray(x), torch.from_numpy(x)):
        packed = sg.pack4(array)
        assert type(packed) is type(array) and str(packed.dtype).endswith("uint8")
        assert np.array_equal(packed, (x[..., ::2].astype(int) % 16) + 16 * (x[..., 1::2].astype(int) % 16))
        back = sg.unpack4(packed)
        assert type(back) is type(array) and str(back.dtype).endswith("int8") and np.array_equal(back, x)


def test_every_byte_is_two_integers() -> None:
    every = np.arange(256, dtype=np.uint8)
    assert np.array_equal(sg.pack4(sg.unpack4(every)), every)
    assert sg.unpack4(np.array([0x8F], np.uint8)).tolist() == [-1, -8]


F32 = np.ones((2, 3), np.float32)
I8 = np.array([[0, 1, 2, 3], [4, 5, 8, 7]], np.int8)


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: sg.quantize(F32, bits=6), ["bits=6", "4, 8, 12 or 16", "bits=8"]),
        (lambda: sg.quantize(F32, bits=8.0), ["bits=8.0"]),
        (lambda: sg.quantize(F32, bits=True), ["bits=True"]),
        (lambda: sg.quantize(F32, rows="yes"), ["rows='yes'", "rows=True for a scale a row"]),
        (lambda: sg.quantize(F32, zero_point=3), ["zero_point=3", "symmetric only", "leave it away"]),
        (lambda: sg.quantize(F32, zero_point=None), ["zero_point=None"]),
        (lambda: sg.quantize(np.array([[1, 2], [3, np.nan]])), ["w[1, 1] is nan", "w[~numpy.isfinite(w)] = 0"]),
        (lambda: sg.quantize(np.array([[1, 2], [-np.inf, 3]]), rows=True), ["w[1, 0] is -inf"]),
        (lambda: sg.quantize(torch.tensor([1.0, float("nan")]).half()), ["w[1] is nan", "w[~torch.isfinite(w)] = 0"]),
        (lambda: sg.quantize(np.array([1, 1e300])), ["w[1] is 1e+300", "beyond f32", "scale the weights down"]),
        (lambda: sg.quantize(I8), ["dtype int8", "integers already", "w.astype(np.float32)"]),
        (lambda: sg.quantize(F32 > 0), ["dtype bool", "quantised in float16"]),
        (lambda: sg.quantize(F32.astype("c8")), ["dtype complex64"]),
        (lambda: sg.quantize(F32[:0]), ["shape (0, 3)"]),
        (lambda: sg.quantize(np.float32(1).reshape(())), ["shape ()"]),
        (lambda: sg.quantize([[1.0]]), ["list is not an array"]),
        (lambda: sg.quantize(torch.ones(2, 2).to_sparse()), ["pass a dense tensor"]),
        (lambda: sg.pack4(I8), ["x[1, 2] is 8", "-8 to 7", "sg.quantize(w, bits=4)"]),
        (lambda: sg.pack4(torch.from_numpy(-2 * I8)), ["x[1, 1] is -10"]),
        (lambda: sg.pack4(I8[:, :3]), ["3 integers on its last axis", "shape (2, 3)", "np.pad"]),
        (lambda: sg.pack4(I8.astype(int)), ["x is of dtype int64", "not int8", "x.astype(np.int8)"]),
        (lambda: sg.pack4(np.int8(1).reshape(())), ["shape ()"]),
        (lambda: sg.unpack4(I8), ["packed is of dtype int8", "not uint8", "what sg.pack4 made"]),
    ],
)  # fmt: skip
def test_refusals(attempt: Any, words: list[str]) -> None:
    with pytest.raises((sg.ArrayError, sg.FormatError)) as e:
        attempt()
    assert e.value.hint and e.value.loc is not None and e.value.loc.file == __file__
    assert all(word in str(e.value) for word in words), str(e.value)


@pytest.mark.gpu
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("rows", [False, True])
def test_on_a_gpu(bits: int, rows: bool) -> None:
    """The same values and scales as on the host, where the tensor is."""
    w = torch.randn(300, 501).half()
    wanted, q = sg.quantize(w, bits, rows=rows), sg.quantize(w.cuda(), bits, rows=rows)
    assert q.values.is_cuda and torch.equal(q.values.cpu(), wanted.values)
    assert q.scale.is_cuda and torch.equal(q.scale.cpu(), wanted.scale)
    if bits == 4:
        packed = sg.pack4(q.values[:, :500])
        assert packed.is_cuda and torch.equal(sg.unpack4(packed), q.values[:, :500])
