"""Whole models: which layers become sparse, by which weights, and what the report says of each."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import sparsegen as sg
import sparsegen.torch as st
from tests.refusals import refusal
from tests.torch.layers import dense, tokens, torch


def model(dtype: Any = torch.float16) -> Any:
    """Two large layers, and a head that words name."""
    torch.manual_seed(7)
    net = torch.nn.Module()
    net.embed = torch.nn.Embedding(16, 512)
    net.up, net.down = torch.nn.Linear(512, 1024), torch.nn.Linear(1024, 512, bias=False)
    net.norm, net.lm_head = torch.nn.LayerNorm(512), torch.nn.Linear(512, 16, bias=False)
    net.forward = lambda x: net.lm_head(net.down(torch.relu(net.up(x))))
    return net.to(dtype)


def test_the_default_rules() -> None:
    net = model()
    before = copy.deepcopy(net.state_dict())
    report = st.sparsify(net)
    assert isinstance(net.up, st.SparseLinear) and isinstance(net.down, st.SparseLinear)
    assert type(net.lm_head) is torch.nn.Linear and report["lm_head"].why == "a rule says so"
    assert report["embed"].kind == "dense" and report["embed"].why.startswith("Embedding is no plain Linear")
    for name in ("up", "down"):
        layer, row = net.get_submodule(name), report[name]
        w = before[f"{name}.weight"]
        assert torch.equal(layer.to_dense(), w.masked_fill(~st.magnitude_mask(w, 0.6), 0))
        assert row.kind == "unstructured 60 %" and row.zeros == pytest.approx(0.6, abs=1e-5)
        assert row.dense_bytes == w.nbytes and 0.35 * w.nbytes < row.bytes < 0.55 * w.nbytes
        assert all(0 < row.times[n] < row.dense_times[n] for n in (1, 8, 16)) and row.error is None
        assert not row.measured
    with pytest.raises(KeyError):
        report["norm"]


@pytest.mark.parametrize("way", ["tensor", "tuple", "dict"])
def test_wanda(way: str) -> None:
    """Norms of all inputs decide, in whichever form they come, and errors are those of the outputs."""
    torch.manual_seed(1)
    layer = dense(1024, 512)
    net, want = torch.nn.Sequential(layer), layer.weight.detach().clone()
    xs = [tokens(4, 512, seed=seed) * torch.linspace(0, 4, 512).half() for seed in (1, 2)]
    items: Any = {"tensor": xs, "tuple": [(x,) for x in xs], "dict": [{"input": x} for x in xs]}[way]
    report = st.sparsify(net, calibration=iter(items), fallback="never")
    norms = torch.cat(xs).float().square().sum(0).sqrt()
    pruned = sg.prune(want, "unstructured", sparsity=0.6, importance=norms)
    assert torch.equal(net[0].to_dense(), pruned)
    assert not torch.equal(pruned, sg.prune(want, "unstructured", sparsity=0.6))
    y = torch.nn.functional.linear(xs[0], want, layer.bias).float()
    exact = torch.nn.functional.linear(xs[0], pruned, layer.bias).float()
    assert report["0"].error == pytest.approx(float(((exact - y).norm() / y.norm()).detach()), rel=0.01)


def test_rules_in_order() -> None:
    net, old = model(), model()
    rules = [
        {"names": "up", "pattern": "vector", "sparsity": 0.9, "bits": 8},
        st.Rule(("d*",), "nm", n=2, m=8),
        {"names": "lm_*", "pattern": "vector", "vector": 4, "sparsity": 0.5},
    ]
    report = st.sparsify(net, {"rules": rules}, fallback="never", tokens=(1,))
    assert isinstance(net.up, st.QuantizedLinear) and net.down.options["m"] == 8
    assert torch.equal(net.down.to_dense(), sg.prune(old.down.weight, "nm", n=2, m=8))
    assert torch.equal(net.lm_head.to_dense(), sg.prune(old.lm_head.weight, "vector", vector=4, sparsity=0.5))
    assert [row.kind for row in report.rows] == ["dense", "vector 90 % 8 bits", "nm 2:8", "vector x4 50 %"]
    assert report["embed"].why == "no rule names it" and net(tokens(3, 512)).shape == (3, 16)


def test_sizes_are_a_filter() -> None:
    net = model()
    report = st.sparsify(net, st.Rule(min_size=10_000))
    assert [row.layer for row in report.rows if row.sparse] == ["up", "down"]
    assert report["lm_head"].why == "no rule names it"


def test_dense_where_no_gain_is_predicted() -> None:
    net = model()
    report = st.sparsify(net, st.Rule("up", sparsity=0.02), tokens=(16, 512), device="a100")
    row = report["up"]
    assert type(net.up) is torch.nn.Linear and row.why == "no gain is predicted"
    assert sum(row.times.values()) >= sum(row.dense_times.values()) > 0 and "A100" in report.device
    assert st.sparsify(net, st.Rule("up", sparsity=0.02), tokens=(16, 512), fallback="never")["up"].sparse


def test_a_report_is_text_a_page_and_data() -> None:
    report = st.sparsify(model(), calibration=[tokens(2, 512)])
    text, page, data = str(report), report._repr_html_(), json.loads(report.to_json())
    assert "2 of 4 layers are sparse" in text.splitlines()[0] and "measured" not in text
    for row, told in zip(report.rows, data["rows"], strict=True):
        assert f'<td style="text-align:left">{row.layer}</td>' in page and told["bytes"] == row.bytes
        line = next(line for line in text.splitlines() if line.startswith(row.layer + " "))
        assert row.kind in line and f"{row.bytes:,}" in line
    assert data["tokens"] == [1, 8, 16]


def refused(prepare: Any, says: str, name: str = "up") -> Any:
    """A layer stays what it was, and the report says why."""
    net = model()
    prepare(net)
    layer = net.get_submodule(name)
    row = st.sparsify(net, fallback="never")[name]
    assert net.get_submodule(name) is layer and not row.sparse and says in row.why


def tied(net: Any) -> None:
    net.other = torch.nn.Linear(512, 1024)
    net.other.weight = net.up.weight


def twice(net: Any) -> None:
    net.other = net.up


def spoilt(net: Any) -> None:
    net.up.weight.data[3, 4] = torch.nan


class Mine(torch.nn.Linear):
    """A subclass."""


@pytest.mark.parametrize(
    "prepare, says",
    [
        (tied, "its weights are shared"), (twice, "its weights are shared"), (spoilt, "a NaN or an infinity"),
        (lambda net: net.double(), "weights are float64: model.half()"),
        (lambda net: net.to("meta"), "load the weights first"),
        (lambda net: net.up.register_forward_hook(lambda *_: None), "has hooks"),
        (lambda net: setattr(net, "up", Mine(512, 1024).half()), "Mine is no plain Linear"),
    ],
    ids=["tied", "twice", "nan", "double", "meta", "hooks", "subclass"],
)  # fmt: skip
def test_what_cannot_be_sparse_stays_and_is_listed(prepare: Any, says: str) -> None:
    refused(prepare, says)


def test_layers_that_calibration_does_not_reach() -> None:
    net = model()
    net.aside = torch.nn.Linear(512, 1024).half()
    want = net.aside.weight.detach().clone()
    report = st.sparsify(net, calibration=[tokens(2, 512)])
    assert report["aside"].why.startswith("calibration did not reach it") and report["aside"].error is None
    assert torch.equal(net.aside.to_dense(), want.masked_fill(~st.magnitude_mask(want, 0.6), 0))


def test_calibration_leaves_the_model_as_it_was() -> None:
    net = model()
    net.train()
    net.norm.eval()
    with pytest.raises(sg.ArrayError):
        st.sparsify(net, calibration=[])
    assert net.training and net.up.training and not net.norm.training and not net.up._forward_pre_hooks


def test_wrong_calls() -> None:
    net, x = model(), tokens(2, 512)
    product, array, format = sg.ProductError, sg.ArrayError, sg.FormatError
    for kind, attempt, says in (
        (product, lambda: st.sparsify(net, {"names": "*", "sparsty": 0.5}), "did you mean"),  # here
        (product, lambda: st.sparsify(net, {"rules": [], "rule": []}), "has no word 'rule'"),  # here
        (product, lambda: st.sparsify(net, []), "without rules"),  # here
        (product, lambda: st.sparsify(net, 3), "a config is no int"),  # here
        (product, lambda: st.sparsify(net, {"names": "mlp"}), "no layer has a name like mlp"),  # here
        (product, lambda: st.sparsify(net, {"pattern": "nn"}), "no pattern 'nn'"),  # here
        (product, lambda: st.sparsify(net, {"pattern": "nm", "bits": 8}), "takes no bits"),  # here
        (product, lambda: st.sparsify(net, {"sparsity": 60}), "no share of the weights"),  # here
        (format, lambda: st.sparsify(net, {"pattern": "nm", "n": 5, "m": 4}), "5"),  # here
        (product, lambda: st.sparsify(net, {"pattern": "vector", "bits": 4}), "bits=4"),  # here
        (product, lambda: st.sparsify(net.up), "has no layers to replace"),  # here
        (product, lambda: st.sparsify(net, tokens=(0,)), "tokens"),  # here
        (product, lambda: st.sparsify(net, fallback="no"), "unknown fallback 'no'"),  # here
        (sg.DeviceError, lambda: st.sparsify(net, device="h2000"), "h2000"),  # here
        (array, lambda: st.sparsify(net, calibration=[]), "calibration yields nothing"),  # here
        (array, lambda: st.sparsify(net, calibration=x), "calibration is a Tensor"),  # here
        (array, lambda: st.sparsify(net, calibration=[x * torch.inf]), "calibration gives up a NaN"),  # here
    ):
        refusal(__file__, kind, attempt, says)
    assert type(net.up) is torch.nn.Linear and type(net.down) is torch.nn.Linear


class Adapted(torch.nn.Module):
    """A layer with a low-rank adapter on top, as LoRA has it."""

    def __init__(self, base: Any, rank: int = 4) -> None:
        super().__init__()
        self.base = base
        self.a = torch.nn.Linear(base.in_features, rank, bias=False).half()
        self.b = torch.nn.Linear(rank, base.out_features, bias=False).half()

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.b(self.a(x))


def test_adapters_train() -> None:
    """Gradients pass through sparse layers to adapters, to a bias and to x."""
    net = model()
    st.sparsify(net)
    net.up, net.down = Adapted(net.up), Adapted(net.down)
    x = tokens(4, 512).requires_grad_()
    want = tokens(4, 16, seed=9)
    trained = [*net.up.a.parameters(), *net.up.b.parameters(), net.up.base.bias, *net.down.b.parameters()]
    steps = torch.optim.SGD(trained, lr=0.1)
    losses = []
    for _ in range(4):
        loss = (net(x) - want).float().square().mean()
        steps.zero_grad()
        loss.backward()
        assert all(bool(p.grad.isfinite().all()) and bool(p.grad.any()) for p in trained)
        steps.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0] and x.grad is not None and bool(x.grad.any())


def test_dtypes() -> None:
    """Another dtype that weights may have is encoded anew; f32 is refused with what helps; autocast takes f32."""
    net = model()
    st.sparsify(net)
    with pytest.raises(sg.ArrayError, match=r"cannot be converted to torch\.float32") as caught:
        net.float()
    assert "torch.autocast" in (caught.value.hint or "")
    assert net.to(torch.bfloat16)(tokens(2, 512, kind="bf16")).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert net(tokens(2, 512, kind="f32")).dtype == torch.bfloat16


def test_a_decoder_of_many_layers_is_one_graph() -> None:
    """More layers than torch's limit of recompilations, compiled as a whole; a second call compiles nothing."""
    from torch._dynamo.testing import CompileCounter

    layers = [dense(64, 64, bias=False) for _ in range(12)]
    for at, layer in enumerate(layers):
        layer.weight.data.mul_(1 + at / 16)
    net = torch.nn.Sequential(*layers)
    st.sparsify(net, fallback="never", tokens=(1,))
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled, x = torch.compile(net, backend=counter, fullgraph=True), tokens(1, 64)
    for _ in range(2):
        assert torch.equal(compiled(x), net(x))
    assert counter.frame_count == 1


@pytest.mark.gpu
def test_layers_are_measured_where_they_are() -> None:
    """Of each pattern, for all numbers of tokens."""
    net = model().cuda()
    rules = [st.Rule("up"), st.Rule("down", "vector", sparsity=0.5, bits=8), st.Rule("lm_head", "nm")]
    report = st.sparsify(net, rules, fallback="never", tokens=(1, 64))
    for name in ("up", "down", "lm_head"):
        times = report[name].measured
        assert {*times} == {1, 64} and all(1e-6 < time < 1e-3 for time in times.values())
    assert "measured" in str(report)
