"""``SparseLinear`` with an N:M pattern: what is pruned, what is computed, in which launches, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
import sparsegen.torch as st
from sparsegen.ir.errors import SparsegenError
from sparsegen.problems.product import Variant
from tests.torch.layers import ALL_KINDS, PATTERNS, agrees, arrays, dense, pair, tokens, torch

WORDS: dict[str, dict[str, Any]] = {
    "elements": {"n": 3, "m": 10},
    "vectors": {"n": 8, "m": 32, "vector": 64},
    "blocks": {"n": 4, "m": 8, "vector": (4, 4)},
    "two of four": {},
}
NM = PATTERNS["nm"]
launches: Any = pytest.importorskip("sparsegen.torch.plan").launches  # which imports torch itself


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("words", WORDS)
def test_it_computes_what_the_pruned_layer_computes(words: str, kind: str) -> None:
    sparse, layer = pair(72, 100, kind, pattern="nm", **WORDS[words])
    assert sparse.format == "nm" and torch.equal(sparse.to_dense(), layer.weight)
    for shape in ((100,), (2, 4, 100), (150, 100), (0, 100)):
        x = tokens(*shape, kind=kind)
        agrees(sparse(x), x, layer)


@pytest.mark.parametrize("line, counts", [("nm_lanes", (1, 3)), ("nm_gather", (2, 70))])
def test_on_the_emulator(line: str, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of the GPU, with the tensors as they are passed there: a lane a row, and rows of x gathered."""
    from sparsegen.torch import plan

    monkeypatch.setitem(plan.BACKENDS, "cpu", "emulator")
    monkeypatch.setattr(plan, "compile", partial(plan.compile, schedule=line))
    sparse, layer = pair(33, 130, pattern="nm", **WORDS["vectors"])
    for n in counts:
        agrees(sparse(tokens(n, 130)), tokens(n, 130), layer)
    (bound,) = sparse._plan._bound.values()
    assert {(k.backend, k.schedule.family) for k in bound._built.values()} == {("emulator", line)}


def test_launches() -> None:
    """Few kernels for any number of tokens: one launch, or two that cover all tokens and write some twice."""
    sizes = {n << i for i in range(8) for n in (64, 96)}
    for tokens_ in range(65, 3000):
        pieces = launches(tokens_)
        assert {size for _, size in pieces} <= sizes and len(pieces) == (1 if tokens_ in sizes else 2)
        assert pieces[0][0] == 0 and sum(pieces[-1]) == tokens_ and pieces[-1][0] <= pieces[0][1]
    assert launches(300) == ((0, 256), (236, 64)) and launches(150) == ((0, 128), (86, 64))


def test_chosen_and_lowered_for_columns() -> None:
    """As the layer's x and y are; the kernel's own figures and checks are of these."""
    sparse, _ = pair(40, 72, tokens=(8,), pattern="nm", n=8, m=32, vector=64)
    (bound,) = sparse._plan._bound.values()
    kernel = bound._built[8, True]
    assert kernel._programs.known.keys() == {(1, Variant("column", "column", 8))}
    x = kernel.random()["x"]
    assert x.flags.f_contiguous and np.array_equal(kernel(x, bias=np.zeros(40, "f2")).shape, (40, 8))
    plain = sg.schedules(sg.spmm(bound.matrix, n=8, bias=True))
    cheaper = {str(c.schedule): c.time for c in plain if c.schedule.family == "nm_gather"}
    turned = {str(c.schedule): c for c in kernel._choice.options.costs if c.schedule.family == "nm_gather"}
    assert turned.keys() == cheaper.keys() and all(c.time > cheaper[line] for line, c in turned.items())
    assert all(c.terms["turn"] > 0 for c in turned.values())


def test_many_tokens() -> None:
    """A number that was prepared in one launch; another in two, with the bits of each alone."""
    sparse, layer = pair(40, 70, tokens=150, **NM)
    (bound,) = sparse._plan._bound.values()
    assert set(bound._built) == {(150, True)}
    x = tokens(160, 70)
    agrees(sparse(x[:150]), x[:150], layer)
    assert set(bound._built) == {(150, True)}
    agrees(sparse(x), x, layer)
    assert set(bound._built) == {(150, True), (128, True), (64, True)}


def test_pruned_as_by_prune() -> None:
    """With a calibration weight too, of inputs or of weights; what obeys the pattern already keeps its bits."""
    layer = dense(40, 70)
    for importance in (None, torch.rand(70), torch.rand(40, 70).double()):
        made = st.SparseLinear.from_linear(layer, importance=importance, **NM)
        want = sg.prune(layer.weight, importance=importance, **NM)
        assert torch.equal(made.to_dense(), want) and made.nnz == int((want != 0).sum())
    with torch.no_grad():
        layer.weight.copy_(want)
        layer.weight[0, int(want[0].nonzero()[0])] = float("nan")
    for more in ({}, {"mask": layer.weight != 0}):
        again = st.SparseLinear.from_linear(layer, **NM, **more).to_dense()
        assert torch.equal(again.view(torch.int16), layer.weight.detach().view(torch.int16))


def test_autocast() -> None:
    sparse, layer = pair(40, 70, "f32", **NM)
    x = tokens(3, 70, kind="bf16")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = sparse(x)
    assert y.dtype == torch.bfloat16 and torch.equal(y, sparse(x.float()).bfloat16())
    agrees(sparse(x.float()), x.float(), layer)


def test_repr() -> None:
    assert "float16, n=3, m=10, vector=(8, 1), 70.0% zeros" in repr(pair(40, 70, **NM)[0])


LAYER = dense(40, 70)
PAIR = pair(40, 70, **NM)[0]
EVERY = torch.ones(40, 70, dtype=torch.bool)


def made(**words: Any) -> Callable[[], object]:
    return lambda: st.SparseLinear.from_linear(LAYER, **words)


def loaded(**words: Any) -> Callable[[], object]:
    return lambda: st.SparseLinear(70, 40, **words)._loaded(PAIR.state_dict(), False)


def called(values: Any, idx: Any, pointers: Any = None) -> Any:
    """The operator with these tensors in the place of PAIR's own."""
    return torch.ops.sparsegen.spmm_linear(tokens(2, 70), PAIR.plan, values, idx, pointers, None, 70, 40)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "unknown": (made(pattern="mn"), "there is no pattern 'mn'(.|\n)*pattern=\"nm\""),
    "no word": (made(pattern=["nm"]), r"no pattern \['nm'\]"),
    "of sg.prune": (made(pattern="unstructured", sparsity=0.5), "no pattern 'unstructured'(.|\n)*or none"),
    "sparsity": (made(pattern="nm", sparsity=0.5), '"nm" takes no sparsity(.|\n)*n, m, vector and importance'),
    "sparsity and mask": (made(pattern="nm", sparsity=0.5, mask=EVERY), "takes no sparsity"),
    "words without": (made(sparsity=0.5, n=2, m=4), "n, m without a pattern(.|\n)*tokens="),
    "empty layer": (lambda: st.SparseLinear(8, 8, vector=4), "vector without a pattern"),
    "n over m": (made(pattern="nm", n=8, m=4), "n=8 of every m=4"),
    "block": (made(pattern="nm", n=3, m=8, vector=(4, 2)), "do not divide n=3"),
    "mask": (made(mask=EVERY, **NM), r"rows 0..7 \(group 0\), window 0 (.|\n)*10 columns(.|\n)*sg.prune"),
    "importance": (made(importance=torch.ones(40), **NM), r"importance has shape \(40,\)(.|\n)*\(70,\)"),
    "importance alone": (made(sparsity=0.5, importance=torch.ones(70)), "importance is given without a pattern"),
    "importance and mask": (made(mask=EVERY, importance=torch.ones(70), **NM), "importance is given beside a mask"),
    "f64": (lambda: st.SparseLinear.from_linear(LAYER.double(), **NM), r"float64; (.|\n)*or linear.float\(\)"),
    "dtype": (lambda: st.SparseLinear(8, 8, dtype=torch.int8, pattern="nm"), "bfloat16 or float32"),
    "another pattern": (loaded(pattern="nm", n=3, m=9, vector=8), r"of the checkpoint are \[3, 10, 8, 1\](.|\n)*'nm'"),
    "of another format": (lambda: st.SparseLinear(70, 40, pattern="nm")._loaded(pair(40, 70)[0].state_dict(), False),
                          "its extra state is"),
    "two tensors": (lambda: called(PAIR.values, PAIR.values, PAIR.values), "nm are 2 tensors: values, idx"),
    "values elsewhere": (lambda: called(PAIR.values[8:].clone(), PAIR.idx), "values has shape"),
    "wrong positions": (lambda: called(PAIR.values, PAIR.idx + 9), "idx holds positions outside"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what: str) -> None:
    attempt, says = REFUSED[what]
    with pytest.raises(SparsegenError, match=says) as caught:
        attempt()
    assert caught.value.hint
    if "checkpoint" not in says and "extra state" not in says:
        assert caught.value.loc is not None and caught.value.loc.file == __file__


def test_a_state_of_another_format() -> None:
    """Through torch's own error, by key; the weights stay what they were."""
    before = PAIR.to_dense()
    says = r'Missing key(.|\n)*"idx"(.|\n)*Unexpected key(.|\n)*"masks"(.|\n)*idx missing'
    with pytest.raises(RuntimeError, match=says):
        PAIR.load_state_dict(pair(40, 70)[0].state_dict())
    assert torch.equal(PAIR.to_dense(), before)
    called(*arrays(PAIR))
