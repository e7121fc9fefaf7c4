"""``SparseLinear``: what it computes, how it is made, moved and copied, and what it refuses."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import sparsegen as sg
import sparsegen.torch as st
from sparsegen.formats.encode import LargerWarning
from sparsegen.ir.errors import ArrayError, ProductError
from tests.torch.layers import ALL_KINDS, KINDS, PATTERNS, agrees, arrays, dense, pair, tokens, torch, words_of


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_it_computes_what_the_masked_layer_computes(kind: str, bias: bool) -> None:
    sparse, layer = pair(72, 100, kind, bias)
    for shape in ((100,), (1, 100), (3, 100), (2, 4, 100), (17, 100), (2, 65, 100), (0, 100)):
        x = tokens(*shape, kind=kind)
        agrees(sparse(x), x, layer)


@pytest.mark.parametrize("m, k", [(1, 1), (16, 64), (33, 130), (5, 7)])
def test_on_the_emulator(m: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of the GPU, with the tensors as they are passed there."""
    from sparsegen.torch import plan

    monkeypatch.setitem(plan.BACKENDS, "cpu", "emulator")
    for kind in KINDS:
        sparse, layer = pair(m, k, kind)
        for n in (1, 3, 8, 17, 70):
            x = tokens(n, k, kind=kind)
            agrees(sparse(x), x, layer)
        (bound,) = sparse._plan._bound.values()
        assert {kernel.backend for kernel in bound._built.values()} == {"emulator"}


def test_more_tokens_than_a_kernel_takes() -> None:
    """Two launches of sizes that others share: the same bits as token by token, and no kernel for the rest."""
    sparse, layer = pair(40, 70)
    x = tokens(150, 70)
    y = sparse(x)
    agrees(y, x, layer)
    (bound,) = sparse._plan._bound.values()
    assert set(bound._built) == {(128, True), (64, True)}
    assert torch.equal(y[::50], torch.cat([sparse(x[i : i + 1]) for i in (0, 50, 100)]))


def test_any_strides_of_x() -> None:
    sparse, layer = pair(40, 70)
    wide = tokens(6, 141)
    odd = wide[:, 1:71]
    for x in (tokens(70, 5).t(), odd, wide.reshape(-1)[3:73], tokens(2, 3, 70).transpose(0, 1)):
        agrees(sparse(x), x, layer)


def test_a_calibrated_mask() -> None:
    keep = torch.rand(48, 80) < 0.3
    sparse, layer = pair(48, 80, mask=keep)
    assert sparse.nnz == int(keep.sum()) and torch.equal(sparse.to_dense() != 0, keep)
    agrees(sparse(tokens(3, 80)), tokens(3, 80), layer)


def test_what_stays_keeps_its_bits() -> None:
    layer = dense(20, 30)
    with torch.no_grad():
        layer.weight[0, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    keep = torch.ones(20, 30, dtype=torch.bool)
    before = layer.weight.detach().clone()
    sparse = st.SparseLinear.from_linear(layer, mask=keep)
    assert torch.equal(sparse.to_dense().view(torch.int16), before.view(torch.int16))
    assert torch.equal(layer.weight.view(torch.int16), before.view(torch.int16)), "the dense layer was changed"


@pytest.mark.parametrize("sparsity", [0, 0.5, 1])
def test_extremes(sparsity: float) -> None:
    sparse, layer = pair(33, 65, sparsity=sparsity)
    kept = 33 * 65 - round(sparsity * 33 * 65)
    assert sparse.nnz == min(kept, int((layer.weight != 0).sum()))  # a random weight may be zero by itself
    agrees(sparse(tokens(3, 65)), tokens(3, 65), layer)


def test_bias_and_mode_are_the_layers_own() -> None:
    layer = dense(8, 16).eval()
    sparse = st.SparseLinear.from_linear(layer)
    assert sparse.bias is layer.bias and not sparse.training
    assert [name for name, _ in sparse.named_parameters()] == ["bias"]


def test_dense_above() -> None:
    sparse, layer = pair(40, 70, dense_above=4)
    plain, _ = pair(40, 70)
    assert plain.dense is None and torch.equal(sparse.dense, layer.weight)
    assert "dense" not in sparse.state_dict() and "dense_above=4" in repr(sparse)
    with torch.no_grad():
        few, many = tokens(4, 70), tokens(5, 70)
        assert torch.equal(sparse(many), layer(many))
        sparse.dense.fill_(7)  # to see which of the two is used
        agrees(sparse(few), few, layer)
        assert not torch.equal(sparse(many), layer(many))


def test_prepare() -> None:
    sparse, _ = pair(40, 70, tokens=3)
    (bound,) = sparse._plan._bound.values()
    assert set(bound._built) == {(3, True)}
    sparse.prepare((1, 8, 200))
    assert set(bound._built) == {(1, True), (3, True), (8, True), (200, True)}
    with pytest.raises(ProductError, match="tokens"):
        sparse.prepare((0,))


def copies() -> dict[str, Callable[[Any], Any]]:
    def saved(module: Any) -> Any:
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        return torch.load(file, weights_only=False)

    return {"deepcopy": copy.deepcopy, "pickle": lambda s: pickle.loads(pickle.dumps(s)), "torch.save": saved}


@pytest.mark.parametrize("way", copies())
@pytest.mark.parametrize("format", PATTERNS)
def test_copies(way: str, format: str) -> None:
    sparse, layer = pair(40, 70, **PATTERNS[format])
    sparse(tokens(2, 70))
    other = copies()[way](sparse)
    assert other.plan is not sparse.plan and other.values.data_ptr() != sparse.values.data_ptr()
    del sparse
    agrees(other(tokens(2, 70)), tokens(2, 70), layer)


@pytest.mark.parametrize("format", PATTERNS)
def test_moving(format: str) -> None:
    """Each place has a plan of its own; the old one ends with its tensors."""
    sparse, layer = pair(40, 70, dense_above=10, **PATTERNS[format])
    old = sparse.plan
    sparse.to("cpu").half().to(torch.float16)
    agrees(sparse(tokens(2, 70)), tokens(2, 70), layer)
    with pytest.raises(ProductError, match="no such plan"):
        torch.ops.sparsegen.spmm_linear(tokens(2, 70), old, *arrays(sparse), None, 70, 40)
    there = sparse.to("meta")
    assert there(torch.empty(5, 2, 70, dtype=torch.float16, device="meta")).shape == (5, 2, 40)


@pytest.mark.parametrize("way", ["float", "double", "type"])
def test_no_conversion(way: str) -> None:
    """To what sparse weights cannot be; the remedy that is named works."""
    sparse, layer = pair(40, 70)
    model = torch.nn.Sequential(sparse)
    args = (torch.half,) if way == "type" else ()
    with pytest.raises(ArrayError, match=r"cannot be converted to (.|\n)*model.half\(\) or model.bfloat16\(\)"):
        getattr(model, way)(*args)
    assert sparse.bias.dtype == torch.float16
    agrees(model.half()(tokens(2, 70)), tokens(2, 70), layer)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("format", PATTERNS)
def test_other_dtypes(kind: str, device: str, format: str) -> None:
    """As a dense layer is converted: there, and back; on no device too."""
    sparse, layer = pair(40, 70, kind, dense_above=50, **PATTERNS[format])
    other = next(k for k in KINDS if k != kind)
    sparse, layer = sparse.to(device), layer.to(device)
    for to in (other, *(["f32"] if format == "nm" else []), kind):
        sparse.to(ALL_KINDS[to])
        layer.to(ALL_KINDS[to])
        x = tokens(60, 70, kind=to, device=device)
        assert sparse.dtype == sparse.dense.dtype == ALL_KINDS[to] and sparse(x).dtype == ALL_KINDS[to]
        if device == "cpu":
            assert torch.equal(sparse.to_dense(), layer.weight) and sparse.nnz == int((layer.weight != 0).sum())
            agrees(sparse(x[:3]), x[:3], layer)
            again = st.SparseLinear(70, 40, dtype=ALL_KINDS[to], **words_of(format))
            again.load_state_dict(sparse.state_dict())
            agrees(again(x[:3]), x[:3], layer)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compiled", [False, True])
def test_autocast(kind: str, compiled: bool) -> None:
    """A float32 model around it: results of autocast's dtype, gradients of x's."""
    sparse, layer = pair(40, 70, "f16")
    run = torch.compile(sparse, backend="eager", fullgraph=True) if compiled else sparse
    x = tokens(3, 70).float().requires_grad_()
    with torch.autocast("cpu", dtype=KINDS[kind]):
        y = run(x)
    y.float().sum().backward()
    assert y.dtype == KINDS[kind] and x.grad.dtype == torch.float32
    agrees(sparse(x.half()), x.half(), layer)
    assert torch.equal(y, sparse(x.half()).to(KINDS[kind]))


def test_what_is_sparse_already_stays_as_it_is() -> None:
    layer = dense(40, 70)
    with torch.no_grad():
        layer.weight.mul_(torch.rand(40, 70) < 0.8)
    assert torch.equal(st.SparseLinear.from_linear(layer).to_dense(), layer.weight)
    pruned = st.SparseLinear.from_linear(layer, sparsity=0.6)
    assert pruned.nnz == 40 * 70 - round(0.6 * 40 * 70)


def test_larger_than_dense_is_said() -> None:
    with pytest.warns(
        LargerWarning, match=r"256x256 f16 with .* zeros takes 1.* saves memory from 8% zeros on"
    ) as said:
        st.SparseLinear.from_linear(dense(256, 256))
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        st.SparseLinear.from_linear(dense(256, 256), sparsity=0.2)


def test_dense_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the cost model; W is decoded once, and only when it is needed."""
    monkeypatch.setattr("sparsegen.products.cost.DENSE_START", 6.0)  # else only large layers are faster dense
    sparse, layer = pair(512, 1024, dense_above="auto")
    W = sg.sparse(sparse.to_dense())
    wanted = {n: sg.schedules(sg.spmm(W, n=n, bias=True))[0].schedule.family == "dense" for n in (2, 64)}
    sparse(tokens(1, 1024))
    (bound,) = sparse._plan._bound.values()
    assert not bound.matrix.auto, "on the CPU the reference multiplies"
    bound.matrix.auto = True
    decoded: list[int] = []
    monkeypatch.setattr(bound, "_decode", lambda: decoded.append(1) or sparse.to_dense())
    for n in (2, 64, 100):
        x = tokens(n, 1024)
        want = torch.nn.functional.linear(x.float(), layer.weight.float(), layer.bias.float())
        assert (sparse(x).float() - want).norm() <= 1e-3 * want.norm()
        assert len(decoded) == wanted[min(n, 64)]
    if not torch.cuda.is_available():
        assert wanted == {2: False, 64: True}


SPARSE, LAYER = pair(40, 70)


def call(values: Any = SPARSE.values, masks: Any = SPARSE.masks, index: Any = SPARSE.index, bias: Any = None) -> Any:
    return torch.ops.sparsegen.spmm_linear(tokens(2, 70), SPARSE.plan, values, masks, index, bias, 70, 40)


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "dtype": (lambda: SPARSE(tokens(2, 70).float()), "x has dtype torch.float32, the weights are torch.float16"),
    "last axis": (lambda: SPARSE(tokens(70, 2)), r"x has shape \(70, 2\); its last axis must have in_features=70"),
    "no axis": (lambda: SPARSE(torch.tensor(1.0).half()), r"x has shape \(\)"),
    "bias": (lambda: call(bias=tokens(41)), r"bias is torch.float16 of shape \(41,\)"),
    "other masks": (lambda: call(masks=SPARSE.masks[:1]), "masks has shape"),
    "too few values": (lambda: call(values=SPARSE.values[2:].clone()), "values has shape"),
    "another index": (lambda: call(index=SPARSE.index + 8), "index contradicts"),
    "unaligned": (lambda: call(values=SPARSE.values[1:]), "that 16 divides"),
}


@pytest.mark.parametrize("what", CALLS)
def test_wrong_calls(what: str) -> None:
    attempt, says = CALLS[what]
    with pytest.raises(sg.SparsegenError, match=says) as caught:
        attempt()
    assert caught.value.hint and caught.value.loc is not None and caught.value.loc.file == __file__


ON_META = torch.nn.Linear(70, 40, device="meta", dtype=torch.float16)
MADE: dict[str, tuple[Callable[[], object], str]] = {
    "f32": (lambda: st.SparseLinear.from_linear(torch.nn.Linear(8, 8)), "weight has dtype torch.float32(.|\n)*half()"),
    "no layer": (lambda: st.SparseLinear.from_linear(torch.nn.ReLU()), "not torch.nn.modules.activation.ReLU"),
    "meta": (lambda: st.SparseLinear.from_linear(ON_META), "on meta"),
    "sparsity": (lambda: st.SparseLinear.from_linear(LAYER, 60), "sparsity=60 is no share"),
    "mask of numbers": (lambda: st.SparseLinear.from_linear(LAYER, mask=LAYER.weight), "mask is torch.float16"),
    "shape of mask": (lambda: st.SparseLinear.from_linear(LAYER, mask=torch.ones(70, 40) > 0), r"\(40, 70\) is needed"),
    "mask elsewhere": (lambda: st.SparseLinear.from_linear(LAYER, mask=torch.ones(40, 70, dtype=torch.bool,
                                                                                  device="meta")), "mask is on meta"),
    "dtype": (lambda: st.SparseLinear(8, 8, dtype=torch.float32), "dtype=torch.float32"),
    "size": (lambda: st.SparseLinear(0, 8), "in_features=0"),
    "dense_above": (lambda: st.SparseLinear(8, 8, dense_above=-1), "dense_above=-1"),
    "dtype of none": (lambda: st.SparseLinear(8, 8, dtype=[]), r"dtype=\[\]"),
    "tokens": (lambda: SPARSE.prepare(5), "tokens=5"),
    "tokens at once": (lambda: st.SparseLinear.from_linear(LAYER, tokens=1.5), "tokens=1.5"),
    "no tensor": (lambda: SPARSE([1.0]), "x is a list"),
}  # fmt: skip


@pytest.mark.parametrize("what", MADE)
def test_what_is_refused(what: str) -> None:
    attempt, says = MADE[what]
    with pytest.raises(sg.SparsegenError, match=says) as caught:
        attempt()
    assert caught.value.hint and caught.value.loc is not None and caught.value.loc.file == __file__


def test_repr() -> None:
    text = repr(pair(64, 128, "bf16", bias=False, sparsity=0.75)[0])
    assert text.startswith("SparseLinear(in_features=128, out_features=64, bias=False, bfloat16, 75.0% zeros, ")
