"""``sg.prune`` against a slow oracle that looks at one window, or sorts all scores; of ties the first stays."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.formats import library
from sparsegen.ir.types import DTYPES
from tests.formats.matrices import tensor
from tests.formats.test_formats_nm import as_bits, patterns

torch: Any = pytest.importorskip("torch")

KINDS = ("f32", "f16", "bf16", "f64")


def numbers(shape: tuple[int, int], kind: str, seed: int) -> Any:
    """Small whole numbers, so that many scores are equal, and zeros with a sign."""
    rng = np.random.default_rng(seed)
    return (rng.integers(-4, 5, shape) * np.where(rng.random(shape) < 0.5, -1.0, 1.0)).astype(DTYPES[kind].numpy())


def weighted(w: Any, importance: Any) -> Any:
    return np.abs(w.astype(np.float64)) * (1 if importance is None else importance)


def slow_nm(w: Any, importance: Any, n: int, m: int, vector: tuple[int, int]) -> Any:
    (r, c), score, keep = vector, weighted(w, importance), np.zeros(w.shape, bool)
    for top in range(0, w.shape[0], r):
        for left in range(0, w.shape[1], m):
            rows, ends = slice(top, top + r), [min(left + j * c, w.shape[1]) for j in range(m // c + 1)]
            sums = [score[rows, a:b].sum() for a, b in pairwise(ends)]
            for j in sorted(range(m // c), key=lambda j: (-sums[j], j))[: n // c]:
                keep[rows, ends[j] : ends[j + 1]] = True
    return keep


def slow_vectors(w: Any, importance: Any, vector: int, sparsity: float) -> Any:
    score, keep = weighted(w, importance), np.zeros(w.shape, bool)
    places = [(top, k) for top in range(0, w.shape[0], vector) for k in range(w.shape[1])]
    places.sort(key=lambda at: -score[at[0] : at[0] + vector, at[1]].sum())  # a stable sort
    for top, k in places[: len(places) - round(float(sparsity) * len(places))]:
        keep[top : top + vector, k] = True
    return keep


def kept(w: Any, keep: Any) -> Any:
    """The bits of the elements that stay."""
    return np.where(keep, as_bits(w), 0)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, Any]:
    shape = draw(st.integers(1, 30)), draw(st.integers(1, 100))
    seed = draw(st.integers(0, 1 << 20))
    shapes = st.sampled_from([None, shape, shape[1:]])
    importance = draw(shapes)
    by = None if importance is None else np.random.default_rng(seed + 1).integers(0, 3, importance)
    return numbers(shape, draw(st.sampled_from(KINDS)), seed), by


def everywhere(w: Any, importance: Any, keep: Any, *pattern: Any, **options: Any) -> None:
    """What is pruned has exactly the elements of ``keep``, in NumPy and torch, in both orders of axes."""
    before = w.copy()
    for array in (w, np.asfortranarray(w)):
        for by in (importance, None if importance is None else torch.from_numpy(importance)):
            p = sg.prune(array, *pattern, importance=by, **options)
            assert type(p) is np.ndarray and p.dtype == w.dtype and not np.shares_memory(p, array)
            assert np.array_equal(as_bits(p), kept(before, keep))
            assert p.flags.c_contiguous == array.flags.c_contiguous
            t = tensor(array)
            q = sg.prune(t, *pattern, importance=by, **options)
            assert (q.dtype, q.stride()) == (t.dtype, t.stride()) and q.data_ptr() != t.data_ptr()
            assert np.array_equal(
                q.view(getattr(torch, f"int{8 * q.element_size()}")).numpy(), p.view(f"i{p.itemsize}")
            )
    assert np.array_equal(as_bits(w), as_bits(before))


@given(problem=problems(), pattern=patterns())
def test_nm(problem: Any, pattern: Any) -> None:
    (w, importance), (n, m, vector) = problem, pattern
    everywhere(w, importance, slow_nm(w, importance, n, m, vector), n=n, m=m, vector=vector)


@given(problem=problems(), sparsity=st.sampled_from([0, 1, 0.5, np.float32(0.1)]) | st.floats(0, 1))
def test_unstructured(problem: Any, sparsity: float) -> None:
    w, importance = problem
    everywhere(w, importance, slow_vectors(w, importance, 1, sparsity), "unstructured", sparsity=sparsity)


@given(problem=problems(), vector=st.integers(1, 9), sparsity=st.floats(0, 1))
def test_vectors(problem: Any, vector: int, sparsity: float) -> None:
    w, importance = problem
    everywhere(w, importance, slow_vectors(w, importance, vector, sparsity), "vector", vector=vector, sparsity=sparsity)


def test_defaults() -> None:
    w = numbers((24, 30), "f16", 0)
    for short, full in (
        ({}, {"n": 2, "m": 4, "vector": 1}),
        ({"n": np.int64(2), "m": 4}, {"n": 2, "m": 4, "vector": (1, 1)}),
        ({"pattern": "vector", "sparsity": 0.5}, {"pattern": "vector", "vector": 8, "sparsity": 0.5}),
    ):
        assert np.array_equal(sg.prune(w, **short), sg.prune(w, **full))


def test_many_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    w = numbers((100, 90), "f32", 1)
    for options in ({"n": 3, "m": 10, "vector": 7}, {"pattern": "vector", "sparsity": 0.3, "vector": 7}):
        whole = sg.prune(w, importance=abs(w) + 1, **options)
        with monkeypatch.context() as patch:
            patch.setattr(library, "HOST_BAND", 1)
            assert np.array_equal(sg.prune(w, importance=abs(w) + 1, **options), whole)


@given(pattern=patterns(), shape=st.tuples(st.integers(1, 40), st.integers(1, 150)))
@pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
def test_what_is_pruned_is_encoded(pattern: Any, shape: tuple[int, int]) -> None:
    n, m, vector = pattern
    w = numbers(shape, "f16", 3)
    p = sg.prune(w, n=n, m=m, vector=vector)
    assert np.array_equal(as_bits(sg.sparse(p, "nm", n=n, m=m, vector=vector).to_dense()), as_bits(p))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", KINDS)
def test_infinities_and_nan_stay(kind: str) -> None:
    """Quietly; a NaN goes after the infinities, and those after the largest numbers; not even importance 0 helps."""
    w = np.array([[1, 60000, np.inf, np.nan, -np.inf, 0, -0.0, 2]]).astype(DTYPES[kind].numpy())
    for importance in (None, np.ones(8), np.zeros(8)):
        for array in (w, tensor(w)):
            for p in (
                sg.prune(array, n=3, m=8, importance=importance),
                sg.prune(array, "unstructured", sparsity=5 / 8, importance=importance),
            ):
                assert (p != 0).nonzero()[1 if array is w else (slice(None), 1)].tolist() == [2, 3, 4]
    for p in (sg.prune(w, n=1, m=8), sg.prune(w, "vector", sparsity=7 / 8)):
        assert np.array_equal(as_bits(p), kept(w, np.arange(8) == 3))


def test_importance_turns_the_choice() -> None:
    w = np.array([[1, 2, 3, 4], [4, 3, 2, 1]], np.float32)
    by = np.array([8, 4, 0, 1])
    assert sg.prune(w, importance=by).tolist() == [[1, 2, 0, 0], [4, 3, 0, 0]]
    assert sg.prune(w, importance=torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1]])).tolist() == [[1, 0, 3, 0], [0, 3, 0, 1]]
    assert sg.prune(w, "unstructured", sparsity=0.75, importance=by).tolist() == [[0, 0, 0, 0], [4, 3, 0, 0]]


def test_parameters_and_other_arrays() -> None:
    """A layer's weight is pruned as it is; views, matrices and arrays that cannot be written too."""
    layer = torch.nn.Linear(8, 4).half()
    p = sg.prune(layer.weight, importance=layer.weight.abs())
    assert not p.requires_grad and p.dtype == torch.float16 and int((p != 0).sum()) <= 16
    w = np.arange(48, dtype=np.float32).reshape(4, 12)
    w.flags.writeable = False
    for view in (w, w[::2, 1::3], w[::-1], np.broadcast_to(w[0], (4, 12)), w.view(np.matrix)):
        p = sg.prune(view, importance=np.ones(view.shape[1]))
        assert type(p) is np.ndarray and np.array_equal(
            p, np.where(slow_nm(np.asarray(view), None, 2, 4, (1, 1)), view, 0)
        )


F32 = np.ones((4, 8), np.float32)
NAN = np.array([1, 2, np.nan, 4, 5, 6, 7, 8])


@pytest.mark.parametrize(
    ("w", "options", "words"),
    [
        (F32, {"pattern": "mn"}, ["no pattern 'mn'", "did you mean 'nm'? use one of nm, unstructured, vector"]),
        (F32, {"pattern": 3}, ["no pattern 3"]),
        (F32, {"sparsity": 0.5}, ['"nm" takes no sparsity', "it takes n, m, vector and importance"]),
        (F32, {"pattern": "unstructured", "n": 2, "m": 4, "sparsity": 0.5}, ['"unstructured" takes no n and no m']),
        (F32, {"pattern": "unstructured", "vector": 2, "sparsity": 0.5}, ["takes no vector"]),
        (F32, {"pattern": "unstructured"}, ["sparsity=None is no share", "sparsity=0.6 prunes 60 %"]),
        (F32, {"pattern": "vector", "sparsity": 1.5}, ["sparsity=1.5"]),
        (F32, {"pattern": "vector", "sparsity": float("nan")}, ["sparsity=nan"]),
        (F32, {"pattern": "vector", "sparsity": True}, ["sparsity=True"]),
        (F32, {"pattern": "vector", "sparsity": "0.5"}, ["sparsity='0.5'"]),
        (F32, {"pattern": "vector", "sparsity": 0.5, "vector": 0}, ["vector=0", "vector=8"]),
        (F32, {"pattern": "vector", "sparsity": 0.5, "vector": (4, 4)}, ["vector=(4, 4)"]),
        (F32, {"pattern": "vector", "sparsity": 0.5, "vector": 1025}, ["1 to 1024"]),
        (F32, {"n": 4, "m": 4}, ["n=4 of every m=4"]),
        (F32, {"n": 4, "m": 8, "vector": (2, 3)}, ["blocks 2x3"]),
        (F32, {"importance": np.ones((8, 4))}, ["importance has shape (8, 4), w (4, 8)", "shape (8,)", "(4, 8)"]),
        (F32, {"importance": np.ones(4)}, ["importance has shape (4,)"]),
        (F32, {"importance": 1.0}, ["float is not an array"]),
        (F32, {"importance": NAN}, ["importance[2] is nan", "numbers >= 0"]),
        (F32, {"importance": -np.ones((4, 8))}, ["importance[0, 0] is -1.0"]),
        (torch.ones(4, 8), {"importance": torch.tensor(NAN)}, ["importance[2] is nan"]),
        (F32, {"importance": np.ones(8, np.complex64)}, ["dtype complex64", "np.linalg.norm"]),
        (F32.astype("i4"), {}, ["dtype int32", "astype(np.float32)", "nothing is cast"]),
        (F32.astype("c8"), {}, ["dtype complex64"]),
        (F32.astype(">f4"), {}, ["byte order"]),
        (F32[0], {}, ["shape (8,)", "[M, K]"]),
        (F32[:0], {}, ["shape (0, 8)"]),
        (np.ma.masked_array(F32, F32 > 0), {}, ["masked", "filled(0)"]),
        (torch.ones(4, 8).to_sparse(), {}, ["pass a dense tensor"]),
        (torch.ones(4, 8, device="meta"), {}, ["meta"]),
        ([[1.0]], {}, ["list is not an array"]),
    ],
    ids=lambda value: None if isinstance(value, list) else "",
)
def test_refusals(w: Any, options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(sg.SparsegenError) as e:
        sg.prune(w, **options)
    assert isinstance(e.value, (sg.ArrayError, sg.FormatError)) and e.value.hint
    assert e.value.loc is not None and e.value.loc.file == __file__
    assert all(word in str(e.value) for word in words), str(e.value)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{"n": 8, "m": 32, "vector": 64}, {"pattern": "unstructured", "sparsity": 0.6}])
def test_on_a_gpu(options: dict[str, Any]) -> None:
    """The same elements as on the host, where the tensor is, with importance from either place."""
    w = torch.randn(300, 500).half()
    by = torch.rand(500)
    wanted = sg.prune(w, importance=by, **options)
    for importance in (by, by.cuda()):
        p = sg.prune(w.cuda(), importance=importance, **options)
        assert p.is_cuda and torch.equal(p.cpu(), wanted)
    with pytest.raises(sg.ArrayError, match="importance is torch's on cuda:0"):
        sg.prune(w, importance=by.cuda(), **options)
