"""Products of vectors: of integers exact modulo 2^32, of floats near f64; any size, height, types, orders, schedule."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.formats.matrix import KINDS, SparseMatrix
from tests.vectors_kit import Array, exact, floats, integers, kernel, pairs, quantized

TYPES = ("i4", "u4", "i8", "u8", "i12", "i16", "u16")
X_TYPES = tuple(kind for kind in TYPES if kind != "i12")
ORDERS = st.sampled_from(["C", "F"])
DEVICES = st.sampled_from(["h200", "a100", "rtx4090"])


class Given(NamedTuple):
    """A matrix, x with an element each, and as a call takes it."""

    w: SparseMatrix
    x_type: str
    x: Array
    taken: Array


@st.composite
def operands(draw: st.DrawFn) -> Given:
    """Few vectors or all; all integers of their types, or the ends of these alone."""
    m, k, n = draw(st.integers(1, 70)), draw(st.integers(1, 300)), draw(st.integers(1, 70))
    seed, extreme, height = draw(st.integers(0, 9)), draw(st.booleans()), draw(st.sampled_from([2, 4, 8]))
    kept, x_type = draw(st.sampled_from([0.0, 0.1, 1.0, 100.0])), draw(st.sampled_from(X_TYPES))
    w = quantized((m, k), draw(st.sampled_from(TYPES)), height, kept, seed, extreme)
    x = integers(np.random.default_rng(seed), x_type, (k, n), extreme)
    packed = KINDS[x_type].bits == 4 and n % 2 == 0 and n > 2 and draw(st.booleans())
    return Given(w, x_type, x, np.asarray(pairs(x) if packed else x, order=draw(ORDERS)))


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Words that the space has and others; those that are left out the cost model fills in."""
    words = {"wide": (32, 64, 128), "lists": (1, 2, 5), "warps": (1, 2, 3, 8), "unroll": (1, 2, 3), "parts": (1, 3, 4)}
    taken = sorted(draw(st.sets(st.sampled_from(sorted(words)))))
    return " ".join(["vector_strip", *(f"{word}={draw(st.sampled_from(words[word]))}" for word in taken)])


@given(operands(), lines(), ORDERS, DEVICES)
def test_any_product_is_exact(of: Given, line: str, y_order: Any, device: str) -> None:
    """With nothing that a checker finds: no race, no bank conflict beyond those that are declared."""
    k = kernel(sg.spmm(of.w, n=of.x.shape[1], x_dtype=of.x_type), line, device)
    want = exact(of.w, of.x)
    out = np.full(want.shape, -1, "i4", y_order)
    assert k(of.taken, out) is out and np.array_equal(out, want)
    report = k.check(of.taken)
    assert report.ok and {note.kind for note in report.notes} <= {"overflow"}, str(report)


@given(operands(), st.sampled_from(["f16", "bf16", "f32"]), st.sampled_from([None, "relu", "gelu", "silu"]), st.data())
def test_any_epilogue_is_near(of: Given, y: str, activation: Any, data: st.DataObject) -> None:
    """Digits are added up in f32; scale, bias and residual follow, and one rounding to y's type."""
    (m, _), n = of.w.shape, of.x.shape[1]
    flags = {name: data.draw(st.booleans()) for name in ("scale", "bias", "residual")}
    product = sg.spmm(of.w, n=n, x_dtype=of.x_type, y_dtype=y, activation=activation, **flags)
    k = kernel(product, data.draw(lines()), data.draw(DEVICES))
    rng, terms = np.random.default_rng(3), (abs(of.w.to_dense().astype("f8")) + 256) @ (abs(of.x.astype("f8")) + 256)
    size = 1 / terms.max() if flags["scale"] else 1.0
    residual = rng.uniform(-1, 1, (m, n)).astype(product.types.y.numpy())
    every = {
        "scale": rng.uniform(size, 3 * size, m).astype("f4"), "bias": rng.uniform(-1, 1, m).astype("f4"),
        "residual": np.asarray(residual, order="C" if of.taken.flags.c_contiguous else "F"),
    }  # fmt: skip
    extra = {name: every[name] for name, given in flags.items() if given}
    want = sg.compile(product, backend="reference")(of.taken, **extra).astype("f8")
    got = k(of.taken, **extra)
    slack = 2.0**-20 * (3 * size * terms + 2) + {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 0}[y] * (abs(want) + 2.0**-14)
    held = np.isfinite(want)  # in f16 not all are
    assert got.dtype == product.types.y.numpy() and (abs(got[held].astype("f8") - want[held]) <= slack[held]).all()


@given(st.sampled_from(["f16", "bf16"]), lines(), ORDERS, ORDERS, DEVICES, st.data())
def test_any_product_of_floats_is_near(
    kind: str, line: str, x_order: Any, y_order: Any, device: str, data: st.DataObject
) -> None:
    """Summed in f32, then the residual, and one rounding; with nothing that a checker finds."""
    m, k, n = (data.draw(st.integers(1, most)) for most in (70, 300, 70))
    height, kept = data.draw(st.sampled_from([2, 4, 8])), data.draw(st.sampled_from([0.0, 0.1, 1.0, 100.0]))
    w, rng = floats((m, k), kind, height, kept, seed=m), np.random.default_rng(n)
    x, more = (rng.uniform(-1, 1, (rows, n)).astype(KINDS[kind].numpy()) for rows in (k, m))
    given = {"residual": np.asarray(more, order=y_order)} if data.draw(st.booleans()) else {}
    made = kernel(sg.spmm(w, n=n, residual=bool(given)), data.draw(st.sampled_from([line, "vector_gather"])), device)
    out = np.full((m, n), np.nan, more.dtype, y_order)
    x = np.asarray(x, order=x_order)
    assert made(x, out, **given) is out
    wide, terms = w.to_dense().astype("f8"), 1e-6 * (1 + abs(w.to_dense().astype("f8")) @ abs(x.astype("f8")))
    want = wide @ x.astype("f8") + (more.astype("f8") if given else 0)
    assert (abs(out.astype("f8") - want) <= {"f16": 2.0**-10, "bf16": 2.0**-7}[kind] * abs(want) + terms).all()
    report = made.check(x, out, **given)
    assert report.ok, str(report)
