"""``SparseLinear`` on the GPU: its numbers, torch.compile, CUDA graphs, streams, memory, the cost of a call."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest

import sparsegen as sg
import sparsegen.torch as st
from tests.torch.layers import ALL_KINDS, KINDS, agrees, pair, tokens, torch

GPU = "cuda"
FORMATS: dict[str, dict[str, Any]] = {"bitmap": {}, "nm": {"pattern": "nm", "n": 8, "m": 32, "vector": 64}}


#: In both formats one launch, and one with a workspace: splits, and x turned before.
LAYERS = [(1000, 1000, 8, "bitmap"), (512, 8192, 1, "bitmap"), (1000, 1000, 2, "nm"), (512, 1024, 96, "nm")]


def kernels(sparse: Any) -> dict[tuple[int, bool], Any]:
    """What has been built: (tokens, bias) -> kernel."""
    return {key: kernel for bound in sparse._plan._bound.values() for key, kernel in bound._built.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m, k", [(512, 512), (1003, 777), (40, 70), (1, 1)])
@pytest.mark.parametrize("format", FORMATS)
def test_it_computes_what_the_masked_layer_computes(m: int, k: int, kind: str, format: str) -> None:
    for bias in (True, False):
        sparse, layer = pair(m, k, kind, bias, GPU, **FORMATS[format])
        for shape in ((k,), (1, k), (3, k), (2, 4, k), (17, k), (130, k)):
            x = tokens(*shape, kind=kind, device=GPU)
            for _ in range(2):  # the first call learns the short way
                agrees(sparse(x), x, layer)
        assert {kernel.backend for kernel in kernels(sparse).values()} == {"cuda"}


@pytest.mark.parametrize(
    "words", [{"n": 3, "m": 10}, {"n": 4, "m": 8, "vector": (4, 4)}, {"n": 8, "m": 32, "vector": 9}]
)
def test_patterns(words: dict[str, Any]) -> None:
    """In f32 too."""
    for kind in ALL_KINDS:
        sparse, layer = pair(300, 500, kind, device=GPU, pattern="nm", **words)
        for n in (1, 6, 40, 200):
            x = tokens(n, 500, kind=kind, device=GPU)
            agrees(sparse(x), x, layer)


def test_many_tokens_of_a_pattern() -> None:
    """A number that was prepared is one launch, others are two; a number of launches is no other product."""
    sparse, layer = pair(1024, 2048, device=GPU, tokens=(300, 2048), **FORMATS["nm"])
    assert set(kernels(sparse)) == {(300, True), (2048, True)}
    for n in (300, 2048, 301, 1000):
        x = tokens(n, 2048, device=GPU)
        for _ in range(2):
            agrees(sparse(x), x, layer)
    assert set(kernels(sparse)) == {(n, True) for n in (64, 256, 300, 768, 2048)}


def test_dense_by_the_model() -> None:
    """Most of it kept and many tokens: W is decoded."""
    sparse, layer = pair(4096, 4096, device=GPU, pattern="nm", n=15, m=16, dense_above="auto")
    for n in (1, 1024):
        x = tokens(n, 4096, device=GPU)
        want = torch.nn.functional.linear(x.float(), layer.weight.float(), layer.bias.float())
        assert (sparse(x).float() - want).norm() <= 1e-3 * want.norm()
    (bound,) = sparse._plan._bound.values()
    assert kernels(sparse)[1024, True] == bound._decoded != kernels(sparse)[1, True]


def test_a_large_layer() -> None:
    sparse, layer = pair(28672, 8192, bias=False, device=GPU)
    assert sparse.nnz == 28672 * 8192 - round(0.6 * 28672 * 8192)
    assert torch.equal(sparse.to_dense(), layer.weight)
    for n in (1, 16, 200):
        x = tokens(n, 8192, device=GPU)
        want = torch.nn.functional.linear(x.float(), layer.weight.float())
        assert (sparse(x).float() - want).norm() <= 1e-3 * want.norm()


def test_x_of_any_strides() -> None:
    sparse, layer = pair(256, 70, device=GPU)
    for x in (tokens(70, 5, device=GPU).t(), tokens(6, 141, device=GPU)[:, 1:71], tokens(211, device=GPU)[1:]):
        x = x.reshape(3, 70) if x.ndim == 1 else x
        agrees(sparse(x), x, layer)


@pytest.mark.parametrize("m, k, n, format", LAYERS)
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_compiled(m: int, k: int, n: int, format: str, mode: str | None) -> None:
    """With other inputs each time; the larger models' kernels have a workspace, and what is packed of a pattern's W is
    made at the first call: neither must be in a graph's pool."""
    from torch._dynamo.utils import counters

    first, second = (pair(*shape, device=GPU, **FORMATS[format])[0] for shape in ((m, k), (k, m)))
    model = torch.nn.Sequential(first, torch.nn.ReLU(), second)
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(model, fullgraph=True, dynamic=False, mode=mode)
    with torch.no_grad():
        for seed in range(6):
            x = tokens(n, k, device=GPU, seed=seed)
            torch.compiler.cudagraph_mark_step_begin()
            assert torch.equal(compiled(x), model(x))
    assert counters["inductor"]["cudagraph_skips"] == 0
    assert len(first._plan._bound) == 1, "the graph has a copy of the weights"
    assert set(kernels(first)) == {(n, True)}
    if k == 8192:
        assert kernels(first)[n, True].workspace_nbytes > 0


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("format", FORMATS)
def test_compiled_with_gradients(mode: str | None, format: str) -> None:
    sparse, _ = pair(512, 256, device=GPU, **FORMATS[format])
    torch._dynamo.reset()
    compiled = torch.compile(sparse, fullgraph=True, dynamic=False, mode=mode)
    for seed in range(4):
        x, grad = tokens(8, 256, device=GPU, seed=seed).requires_grad_(), tokens(8, 512, device=GPU, seed=seed + 9)
        torch.compiler.cudagraph_mark_step_begin()
        got = [g.clone() for g in torch.autograd.grad(compiled(x), [x, sparse.bias], grad)]
        want = torch.autograd.grad(sparse(x), [x, sparse.bias], grad)
        for a, b in zip(got, want, strict=True):
            assert (a - b).float().norm() <= 2e-3 * b.float().norm()


@pytest.mark.parametrize("m, k, n, format", [*LAYERS, (512, 512, 150, "bitmap"), (512, 512, 150, "nm")])
def test_captured(m: int, k: int, n: int, format: str) -> None:
    """Replayed with other inputs, beside calls outside of the graph."""
    sparse, _ = pair(m, k, device=GPU, **FORMATS[format])
    sparse.prepare((n,))
    x = tokens(n, k, device=GPU)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = sparse(torch.relu(sparse(x)[:, :k])) if m == k else sparse(x)
    for seed in (3, 4, 5):
        x.copy_(tokens(n, k, device=GPU, seed=seed))
        graph.replay()
        with torch.no_grad():
            want = sparse(torch.relu(sparse(x)[:, :k])) if m == k else sparse(x)
        torch.cuda.synchronize()
        assert torch.equal(y, want)


@pytest.mark.parametrize("format", FORMATS)
def test_a_capture_builds_nothing(format: str) -> None:
    """Refused by name, and the module works as before."""
    sparse, layer = pair(512, 512, device=GPU, **FORMATS[format])
    x = tokens(5, 512, device=GPU)
    for prepared in ((), (4,)):
        if prepared:
            sparse.prepare(prepared)
        with pytest.raises(sg.DeviceError, match=r"while a CUDA graph is being captured(.|\n)*prepare\(tokens="):
            with torch.no_grad(), torch.cuda.graph(torch.cuda.CUDAGraph()):
                x.add_(0)
                sparse(x)
    with pytest.raises(sg.DeviceError, match="call prepare before the capture"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.add_(0)
            sparse.prepare()
    agrees(sparse(x), x, layer)


@pytest.mark.parametrize("m, k, n, format", LAYERS)
def test_side_streams(m: int, k: int, n: int, format: str) -> None:
    """Each call waits for what its own stream wrote before, and all may run at once."""
    sparse, _ = pair(m, k, device=GPU, **FORMATS[format])
    x = tokens(n, k, device=GPU)
    late, want = torch.zeros_like(x), sparse(x)
    torch.cuda.synchronize()
    got = []
    for stream in [torch.cuda.Stream() for _ in range(4)]:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(10_000_000)
            late.copy_(x)
            got.append(sparse(late))
    torch.cuda.synchronize()
    assert all(torch.equal(y, want) for y in got)


def test_prepare_builds_what_calls_need() -> None:
    sizes = (1, 2, 64, 100, 256)
    sparse, layer = pair(512, 384, device=GPU, tokens=sizes)
    assert set(kernels(sparse)) == {(n, True) for n in sizes}
    before = {key: id(kernel) for key, kernel in kernels(sparse).items()}
    for n in (1, 2, 64, 65, 100, 300):
        x = tokens(n, 384, device=GPU)
        agrees(sparse(x), x, layer)
    assert {key: id(kernel) for key, kernel in kernels(sparse).items()} == before


@pytest.mark.parametrize("format", FORMATS)
def test_there_and_back(format: str) -> None:
    """From the CPU to the GPU and back, and a state_dict of the one loaded into the other."""
    sparse, layer = pair(300, 500, **FORMATS[format])
    x = tokens(3, 500)
    sparse.cuda()
    layer.cuda()
    agrees(sparse(x.cuda()), x.cuda(), layer)
    with pytest.raises(sg.ArrayError, match="x is on cpu, the weights are on cuda:0"):
        sparse(x)
    other = st.SparseLinear(500, 300, device=GPU, **FORMATS[format])
    other.load_state_dict({name: t.cpu() for name, t in sparse.state_dict().items()})
    agrees(other(x.cuda()), x.cuda(), layer)
    agrees(sparse.cpu()(x), x, layer.cpu())


def test_memory() -> None:
    """No copy of the weights, and none that is left behind by a move."""
    torch.cuda.synchronize()
    start = torch.cuda.memory_allocated()
    sparse, layer = pair(4096, 4096, bias=False, device=GPU)
    del layer
    stored = sum(b.numel() * b.element_size() for b in sparse.buffers())
    x = tokens(8, 4096, device=GPU)
    sparse(x)
    rest = 3 << 20  # what torch leaves unused behind each of the three large buffers: less than 1 MiB
    assert torch.cuda.memory_allocated() - start <= stored + x.numel() * 2 + rest
    sparse.cpu()
    assert torch.cuda.memory_allocated() - start <= x.numel() * 2 + (1 << 16)


@pytest.mark.alone
@pytest.mark.parametrize("format, n", [("bitmap", 8), ("nm", 1), ("nm", 64)])
def test_the_cost_of_a_call(format: str, n: int) -> None:
    """Median host time of ``module(x)`` without gradients, on a layer whose kernel is shorter than that."""
    sparse, _ = pair(256, 256, device=GPU, **FORMATS[format])
    x = tokens(n, 256, device=GPU)
    times = []
    with torch.no_grad():
        for i in range(5000):
            start = time.perf_counter_ns()
            sparse(x)
            times.append(time.perf_counter_ns() - start)
            if i % 500 == 0:
                torch.cuda.synchronize()  # or the queue of launches fills up and calls wait for the device
    print(f"a call of SparseLinear in {format}, {n} tokens: {statistics.median(times) / 1e3:.1f} us")
    assert statistics.median(times) <= 100_000
