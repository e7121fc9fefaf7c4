"""One rank of a test of split layers, a process of its own: ``parallel_worker.py FOLDER RANK RANKS``."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import sparsegen as sg
import sparsegen.torch as st
from sparsegen.distributed.sums import near_sums


class Block(torch.nn.Module):
    """The linear layers of a Llama block, without attention between them."""

    def __init__(self, width: int, inner: int, bias: bool) -> None:
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(width, width, bias) for _ in range(3))
        self.o = torch.nn.Linear(width, width, bias)
        self.gate, self.up = torch.nn.Linear(width, inner, bias), torch.nn.Linear(width, inner, bias)
        self.down = torch.nn.Linear(inner, width, bias)

    def forward(self, x: Any) -> Any:
        x = x + self.o(torch.tanh(self.q(x)) * self.k(x) + self.v(x))
        return x + self.down(torch.relu(self.gate(x)) * self.up(x))


PLAN = {"*.[qkv]": st.SparseColwise(), "*.gate": st.SparseColwise(), "*.up": st.SparseColwise(),
        "*.o": st.SparseRowwise(), "*.down": st.SparseRowwise()}  # fmt: skip
RULES = [st.Rule("*.o", "dense"), st.Rule("*.down", "nm", n=2, m=4, vector=8), st.Rule(sparsity=0.6)]


def model(bias: bool = True) -> Any:
    torch.manual_seed(3)
    return torch.nn.Sequential(Block(64, 96, bias), Block(64, 96, bias)).half()


def numbers(*shape: int) -> Any:
    """Sums of products of these are exact, in whatever order."""
    made = torch.Generator().manual_seed(5)
    return torch.randint(-8, 9, shape, generator=made).half() / 8


def mesh() -> Any:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def own(whole: Any, axis: int) -> Any:
    return whole.chunk(dist.get_world_size(), axis)[dist.get_rank()]


def near(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3)


def layers() -> None:
    """Each style, with the placements that torch has, and gradients."""
    for words in ({"sparsity": 0.6}, {"pattern": "nm", "n": 2, "m": 8, "vector": 8}, {"pattern": "nm", "n": 1, "m": 2}):
        torch.manual_seed(1)
        linear = torch.nn.Linear(48, 80).half()
        linear.weight.data, linear.bias.data = numbers(80, 48), numbers(80)
        whole = st.SparseLinear.from_linear(linear, **words)
        x = numbers(5, 48)
        y, w = whole(x), whole.to_dense()

        split: Any = parallelize_module(copy.deepcopy(whole), mesh(), st.SparseColwise())
        assert torch.equal(split.to_dense(), own(w, 0)) and split.bias.shape == (80 // dist.get_world_size(),)
        assert torch.equal(split(x), own(y, -1)), "column-parallel layers make the numbers of the whole one"
        assert f"rows of rank {dist.get_rank()} of 2" in repr(split)
        every: Any = parallelize_module(copy.deepcopy(whole), mesh(), st.SparseColwise(output_layouts=Replicate()))
        assert torch.equal(every(x), y)
        some: Any = st.SparseColwise(input_layouts=Shard(-1), use_local_output=False)
        made = parallelize_module(copy.deepcopy(whole), mesh(), some)(own(x, -1))
        assert isinstance(made, DTensor) and torch.equal(made.full_tensor(), y)

        rows: Any = parallelize_module(copy.deepcopy(whole), mesh(), st.SparseRowwise())
        assert torch.equal(rows.to_dense(), own(w, 1)) and (rows.bias is None) == (dist.get_rank() > 0)
        near(rows(own(x, -1)), y)
        part: Any = parallelize_module(copy.deepcopy(whole), mesh(), st.SparseRowwise(input_layouts=Replicate()))
        near(part(x), y)
        assert near_sums(mesh().get_group(), torch.device("cpu")) is None, "sums over gloo are gloo's"
        shared: Any = parallelize_module(copy.deepcopy(whole), mesh(), st.SparseRowwise(output_layouts=Shard(0)))
        near(shared(own(x[:4], -1)), own(y[:4], 0))

        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        torch.tanh(rows(torch.relu(split(a))[:, : 48 // 2])).sum().backward()
        half = [torch.relu(y_)[:, :24] for y_ in whole(b).chunk(2, -1)]
        torch.tanh(whole(torch.cat(half, -1))).sum().backward()
        torch.testing.assert_close(a.grad, b.grad, rtol=2e-2, atol=2e-2)


def split(layer: Any, style: Any) -> Any:
    return parallelize_module(copy.deepcopy(layer), mesh(), style)


def quantised() -> None:
    """8-bit layers: rows and their scales; by columns each rank's integers are exact, under the scale of its own x."""
    torch.manual_seed(2)
    for bias in (True, False):
        linear = torch.nn.Linear(48, 80, bias).half()
        whole: Any = st.SparseLinear.from_linear(linear, 0.6, bits=8, vector=4)
        x, w = torch.randn(5, 48).half(), whole.to_dense()
        with torch.no_grad():
            y = whole(x)
            up = split(whole, st.SparseColwise())
            assert torch.equal(up.to_dense(), own(w, 0)) and torch.equal(up.scale, own(whole.scale, 0))
            assert torch.equal(up(x), own(y, -1)) and f"rows of rank {dist.get_rank()} of 2" in repr(up)
            assert torch.equal(split(whole, st.SparseColwise(output_layouts=Replicate()))(x), y)

            down = split(whole, st.SparseRowwise())
            assert torch.equal(down.to_dense(), own(w, 1)) and torch.equal(down.scale, whole.scale)
            want = torch.zeros(5, 80)
            for columns, part in zip(w.chunk(2, 1), x.float().chunk(2, 1), strict=True):
                scale = part.abs().max() / 127
                want += (part / scale).round() @ columns.T * scale
            near(down(own(x, -1)), (want + (0 if linear.bias is None else linear.bias)).half())
            near(split(whole, st.SparseRowwise(input_layouts=Replicate()))(x), down(own(x, -1)))

            scaled = st.QuantizedLinear.from_linear(linear, 0.6, x_scale=1 / 32)
            near(split(scaled, st.SparseRowwise())(own(x, -1)), scaled(x))


def fused() -> None:
    """Layers of one x in one launch: each is split, and by columns one sum is that of all."""
    torch.manual_seed(6)
    for words in ({"sparsity": 0.6}, {"pattern": "nm", "n": 2, "m": 4, "vector": 4}):
        parts = [torch.nn.Linear(48, m, m < 40).half() for m in (48, 16, 24)]
        for part in parts:
            part.weight.data = numbers(part.out_features, 48)
        whole = st.FusedLinear([st.SparseLinear.from_linear(part, **words) for part in parts])  # type: ignore[misc]
        x = numbers(5, 48)
        ys = whole(x)
        up = split(whole, st.SparseColwise())
        assert up.features == (24, 8, 12) and whole.features == (48, 16, 24)
        for got, y in zip(up(x), ys, strict=True):
            assert torch.equal(got, own(y, -1))
        for got, y in zip(split(whole, st.SparseColwise(output_layouts=Replicate()))(x), ys, strict=True):
            assert torch.equal(got, y)
        down = split(whole, st.SparseRowwise())
        assert down.features == whole.features and torch.equal(down.whole.to_dense(), own(whole.whole.to_dense(), 1))
        for style in (st.SparseRowwise(), st.SparseRowwise(use_local_output=False)):
            for got, y in zip(split(whole, style)(own(x, -1)), ys, strict=True):
                near(got.to_local() if isinstance(got, DTensor) else got, y)
        for got, y in zip(split(whole, st.SparseRowwise(output_layouts=Shard(-1)))(own(x, -1)), ys, strict=True):
            near(got, own(y, -1))

        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        sum(y.float().square().sum() for y in up(a)).backward()
        sum(y.float().square().sum() for y in whole(b)).backward()
        torch.testing.assert_close(a.grad, b.grad, rtol=2e-2, atol=2e-2)


class Heads(torch.nn.Module):
    """Projections of one input, and what takes them."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (64, 32, 32)
        self.qkv = st.FusedLinear([st.SparseLinear(64, m) for m in sizes])
        self.up, self.down = torch.nn.Linear(64, 96).half(), torch.nn.Linear(96, 64).half()

    def forward(self, x: Any) -> Any:
        return *self.qkv(x), self.down(torch.relu(self.up(x)))


def heads() -> Heads:
    torch.manual_seed(8)
    made = Heads()
    some = [torch.nn.Linear(64, m).half() for m in (64, 32, 32)]
    made.qkv = st.FusedLinear([st.SparseLinear.from_linear(layer, 0.5) for layer in some])  # type: ignore[misc]
    return made


def sparse_before(folder: str) -> None:
    """A model with fused layers that are there already, and quantised ones: split, saved by parts, and read again."""
    rules = [st.Rule("*", "vector", sparsity=0.5, bits=8, vector=4)]
    plan = {"qkv*": st.SparseColwise(), "up": st.SparseColwise(), "down": st.SparseRowwise()}
    with torch.no_grad():
        x, one, net = numbers(3, 64), heads(), heads()
        st.sparsify(one, rules, fallback="never", device="h100")
        report = st.sparsify(net, rules, fallback="never", device="h100", mesh=mesh(), plan=plan)
        assert report["up"].kind.endswith("8 bits") and net.qkv.features == (32, 16, 16)
        assert torch.equal(net.up(x), own(one.up(x), -1)) and net.down.split.axis == 1
        *qkv, y = net(x)
        *want, _ = one(x)
        for got, whole in zip(qkv, want, strict=True):
            assert torch.equal(got, own(whole, -1))
        st.save(net, f"{folder}/quantised")
        if dist.get_rank() == 0:
            st.save(one, f"{folder}/quantised_whole")
        dist.barrier()
        for name in ("quantised", "quantised_whole"):
            read = Heads()
            st.load(read, f"{folder}/{name}", mesh=mesh(), plan=plan)
            assert repr(read) == repr(net) and torch.equal(read.qkv.whole.to_dense(), net.qkv.whole.to_dense())
            assert torch.equal(read(x)[-1], y)


def models(folder: str) -> None:
    """A whole model, sparse, dense and in a pattern; saved by parts, and read again; and split when it is read."""
    with torch.no_grad():
        x, one = numbers(3, 64), model()
        st.sparsify(one, RULES, fallback="never", device="h100")
        want = one(x)
        net = model()
        report = st.sparsify(net, RULES, fallback="never", device="h100", mesh=mesh(), plan=PLAN)
        assert report["0.up"].dense_bytes == 64 * 96 // 2 * 2 and report["0.down"].kind == "nm 2:4 vector 8"
        near(net(x), want)
        assert isinstance(net[0].o.weight, DTensor) and isinstance(net[0].up, st.SparseLinear)
        again = model()
        st.sparsify(again, RULES, fallback="never", device="h100", mesh=mesh(), plan=PLAN)
        own_part = {name: a for name, a in net.state_dict().items() if not isinstance(a, DTensor)}
        again.load_state_dict(own_part, strict=False)
        near(again(x), want)

        st.save(net, f"{folder}/parts")
        if dist.get_rank() == 0:
            st.save(one, f"{folder}/whole")
        dist.barrier()
        for name in ("parts", "whole"):
            read = model()
            st.load(read, f"{folder}/{name}", mesh=mesh(), plan=PLAN)
            near(read(x), want)
            assert torch.equal(read[1].up.to_dense(), net[1].up.to_dense()) and repr(read) == repr(net)


def refused(kind: type[sg.SparsegenError], says: str, attempt: Callable[[], object]) -> None:
    """An AssertionError unless all ranks are refused it, with these words and a remedy."""
    try:
        attempt()
    except kind as error:
        assert says in str(error) and error.hint, error
    else:
        raise AssertionError(f"nothing says {says}")


def refusals(folder: str) -> None:
    """What cannot be split, and whose parts do not go together; models stay whole."""
    torch.manual_seed(dist.get_rank())
    other = st.SparseLinear.from_linear(torch.nn.Linear(32, 32).half(), sparsity=0.5)
    refused(sg.DeviceError, "different weights", lambda: parallelize_module(other, mesh(), st.SparseColwise()))
    torch.manual_seed(1)
    odd = st.SparseLinear.from_linear(torch.nn.Linear(33, 31).half(), sparsity=0.5)
    refused(sg.ProductError, "in_features=33", lambda: parallelize_module(odd, mesh(), st.SparseRowwise()))
    small = st.QuantizedLinear(32, 31)
    refused(sg.ProductError, "out_features=31", lambda: parallelize_module(small, mesh(), st.SparseColwise()))
    pair = st.FusedLinear([st.SparseLinear(32, 16), st.SparseLinear(32, 15)])
    refused(sg.ProductError, "out_features=15", lambda: parallelize_module(pair, mesh(), st.SparseColwise()))
    holder = torch.nn.ModuleDict({"pair": pair})
    plan = {"pair": st.SparseColwise()}
    refused(sg.ProductError, "out_features=15", lambda: st.sparsify(holder, mesh=mesh(), plan=plan))
    norm = torch.nn.LayerNorm(8)
    refused(sg.ProductError, "a LayerNorm cannot", lambda: parallelize_module(norm, mesh(), st.SparseColwise()))
    made = parallelize_module(st.SparseLinear(32, 32), mesh(), st.SparseColwise())
    refused(sg.ProductError, "is split already", lambda: parallelize_module(made, mesh(), st.SparseColwise()))
    refused(sg.ProductError, "cannot be fused", lambda: st.FusedLinear([made, made]))
    two = init_device_mesh("cpu", (1, 2))
    refused(sg.ProductError, "one axis", lambda: parallelize_module(st.SparseLinear(8, 8), two, st.SparseColwise()))

    net = model()
    for says, rules, plan in (
        ("out_features=64 in groups of 64", [st.Rule(pattern="nm", n=2, m=4, vector=64)], {"*.q": st.SparseColwise()}),
        ("no layer has a name like *.w1", None, {"*.w1": st.SparseColwise()}),
        ("is no style", None, {"*.q": ColwiseParallel()}),
        ("says of no layer", None, st.SparseColwise()),
    ):
        refused(sg.ProductError, says, lambda: st.sparsify(net, rules, mesh=mesh(), plan=plan))  # noqa: B023
    refused(sg.ProductError, "go together", lambda: st.sparsify(net, mesh=mesh()))
    assert all(type(net[0].get_submodule(name)) is torch.nn.Linear for name in "qkvo")
    refused(sg.FormatError, "with mesh and plan", lambda: st.load(net, f"{folder}/parts"))
    less = {name: style for name, style in PLAN.items() if name != "*.up"}
    for plan in (less, {**less, "*.up": st.SparseRowwise()}):
        refused(sg.FormatError, "otherwise", lambda: st.load(model(), f"{folder}/parts", mesh=mesh(), plan=plan))  # noqa: B023


def main() -> None:
    folder, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    layers()
    quantised()
    fused()
    sparse_before(folder)
    models(folder)
    refusals(folder)
    dist.destroy_process_group()
    print("equal", flush=True)


if __name__ == "__main__":
    main()
