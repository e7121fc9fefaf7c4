"""One rank of a test over NCCL, a process and a GPU of its own: ``ranks_worker.py FOLDER RANK RANKS WHAT``."""

from __future__ import annotations

import sys
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

import sparsegen as sg
import sparsegen.torch as st
from sparsegen.distributed.sums import near_sums
from tests.distributed.worker import heat, wave

#: Between two ranks of 400 rows, and far from there.
shot = wave.with_sites(
    shot=sg.Source([[199.5, 260.25], [120.0, 100.75]], torch.linspace(1.0, -1.0, 30).numpy()),
    heard=sg.Receiver([[199.5, 259.5], [200.0, 262.0], [198.25, 255.5], [110.5, 100.25], [399.0, 519.0]]),
)


def numbers(folder: str) -> None:
    """A run whose checkpoint goes on on one GPU, and back; a shot; layers by columns and by rows; in a graph too."""
    first, ranks = dist.get_rank() == 0, dist.get_world_size()
    k = sg.compile(heat, (300, 260), 8, backend="cuda")
    u = torch.rand(k.shape, dtype=torch.float64, device="cuda", generator=torch.Generator("cuda").manual_seed(2))
    d, file = sg.distribute(k, (ranks,)), f"{folder}/run.npz"
    mine = d.scatter(u if first else None)
    *_, frame = d.run(mine, 20, every=10, checkpoint=file)
    whole = d.gather(frame["u"])
    if first:
        *_, want = k.run(u, 20)
        assert torch.equal(whole, want["u"])
        *_, want = k.run(torch.zeros_like(u), 41, checkpoint=file, resume=True)
        assert torch.equal(want["u"], [*k.run(u, 41)][-1]["u"])
    dist.barrier()
    *_, frame = d.run(mine, 50, checkpoint=file, resume=True)
    whole = d.gather(frame["u"])
    assert whole is None or torch.equal(whole, [*k.run(u, 50)][-1]["u"])

    k = sg.compile(shot, (400, 520), 30, backend="cuda", schedule="stream levels=3")
    still, c = torch.zeros(k.shape, device="cuda"), torch.full(k.shape, 0.25, device="cuda")
    d = sg.distribute(k, (ranks,))
    (want, _), heard = k((still, still), c)
    part = d.block
    for _ in range(2):  # arrays of the first call are taken again
        (now, _), mine_heard = d((still[part].contiguous(),) * 2, c[part].contiguous())
        assert torch.equal(now, want[part]) and torch.equal(mine_heard, heard) and heard.abs().max() > 0.01
    *_, frame = d.run((still[part].contiguous(),) * 2, c[part].contiguous(), 30, every=7)
    assert torch.equal(torch.as_tensor(frame.records["heard"]), heard.cpu())

    torch.manual_seed(4)
    mesh: Any = init_device_mesh("cuda", (ranks,))
    for words in ({"sparsity": 0.6}, {"pattern": "nm", "n": 2, "m": 8}):
        linear = torch.nn.Linear(1024, 768, device="cuda", dtype=torch.float16)
        x = torch.rand(8, 1024, device="cuda", dtype=torch.float16) - 0.5
        whole_layer = st.SparseLinear.from_linear(linear, **words)
        with torch.no_grad():
            want, w = whole_layer(x), whole_layer.to_dense()
            up = parallelize_module(whole_layer, mesh, st.SparseColwise())
            got = up(x)
            torch.testing.assert_close(got, want.chunk(ranks, -1)[dist.get_rank()], rtol=2e-3, atol=2e-3)
            again = torch.nn.Linear(1024, 768, device="cuda", dtype=torch.float16)
            again.weight.copy_(w)
            again.bias.copy_(linear.bias)
            down = parallelize_module(st.SparseLinear.from_linear(again, **words), mesh, st.SparseRowwise())
            part = x.chunk(ranks, -1)[dist.get_rank()].contiguous()
            torch.testing.assert_close(down(part), want, rtol=4e-3, atol=4e-3)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                y = down(part)
            y.zero_()
            graph.replay()
            torch.cuda.synchronize()
            torch.testing.assert_close(y, want, rtol=4e-3, atol=4e-3)
    others(mesh)
    print("equal", flush=True)


def others(mesh: Any) -> None:
    """Quantised layers and fused ones: rows bit for bit, columns near."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    linear = torch.nn.Linear(1024, 768, device="cuda", dtype=torch.float16)
    x = torch.rand(8, 1024, device="cuda", dtype=torch.float16) - 0.5
    mine = x.chunk(ranks, -1)[rank].contiguous()
    with torch.no_grad():
        made: list[Any] = [st.QuantizedLinear.from_linear(linear, 0.8, height=4) for _ in range(2)]
        want = made[0](x)
        assert torch.equal(parallelize_module(made[0], mesh, st.SparseColwise())(x), want.chunk(ranks, -1)[rank])
        torch.testing.assert_close(parallelize_module(made[1], mesh, st.SparseRowwise())(mine), want, rtol=0, atol=2e-2)

        parts: list[Any] = [st.SparseLinear.from_linear(linear, 0.6) for _ in range(3)]
        made = [st.FusedLinear(parts) for _ in range(2)]
        each = made[0](x)
        up, down = (
            parallelize_module(m, mesh, s()) for m, s in zip(made, (st.SparseColwise, st.SparseRowwise), strict=True)
        )
        for got, y in zip(up(x), each, strict=True):
            torch.testing.assert_close(got, y.chunk(ranks, -1)[rank], rtol=2e-3, atol=2e-3)
        for got, y in zip(down(mine), each, strict=True):
            torch.testing.assert_close(got, y, rtol=4e-3, atol=4e-3)


def sums(mesh: Any) -> None:
    """Small results of layers by columns are summed by a kernel of our own, in a graph too, as other ones by NCCL."""
    rank, ranks, group = dist.get_rank(), dist.get_world_size(), mesh.get_group()
    near = near_sums(group, torch.device("cuda", rank))
    assert near is not None, "the GPUs of this machine reach each other"
    made = torch.Generator("cuda").manual_seed(rank)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for shape in ((1, 8), (16, 8192), (3, 4100), (16, 8192)):
            assert near.take(shape, dtype)
            y = torch.randn(shape, device="cuda", generator=made).to(dtype)
            every = [torch.empty_like(y) for _ in range(ranks)]
            dist.all_gather(every, y)
            want = sum(part.float() for part in every).to(dtype)
            for _ in range(5):
                assert torch.equal(near(y), want)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                on_side = near(y)
            torch.cuda.current_stream().wait_stream(side)
            assert torch.equal(on_side, want) and torch.equal(near(y), want)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                found = [near(y) for _ in range(3)]
            for turn in range(4):
                y.mul_(-1), want.mul_(-1)
                graph.replay()
                assert all(torch.equal(z, want) for z in found), f"replay {turn}"
                assert torch.equal(near(y), want), "between replays"
    assert not near.take((16, 1 << 20), torch.float16) and not near.take((3,), torch.float16)
    dist.barrier()

    linear = torch.nn.Linear(512, 1024, device="cuda", dtype=torch.float16)
    for p in linear.parameters():
        dist.broadcast(p.data, 0)
    split: Any = parallelize_module(st.SparseLinear.from_linear(linear, 0.6), mesh, st.SparseRowwise())
    x = (
        torch.rand(2048, 512, device="cuda", dtype=torch.float16, generator=torch.Generator("cuda").manual_seed(1))
        - 0.5
    )
    mine = x.chunk(ranks, -1)[rank].contiguous()
    whole = split(mine)  # too many numbers, so by NCCL
    torch.testing.assert_close(split(mine[:16].contiguous()), whole[:16], rtol=4e-3, atol=4e-3)
    part = mine[:16].clone().requires_grad_()
    split(part).square().sum().backward()
    assert part.grad is not None and part.grad.abs().max() > 0


def summing() -> None:
    """Sums until somebody ends it."""
    mesh: Any = init_device_mesh("cuda", (dist.get_world_size(),))
    near: Any = near_sums(mesh.get_group(), torch.device("cuda", dist.get_rank()))
    y = torch.ones(16, 8192, device="cuda")
    for at in count():
        near(y)
        torch.cuda.synchronize()
        if at == 3:
            print("running", flush=True)


def endless() -> None:
    """Steps until somebody ends it."""
    d = sg.distribute(sg.compile(heat, (300, 260), 8, backend="cuda"), (dist.get_world_size(),))
    mine = torch.zeros(d.block_shape, dtype=torch.float64, device="cuda")
    for at in count():
        mine = d(mine)
        torch.cuda.synchronize()
        if at == 3:
            print("running", flush=True)


def main() -> None:
    folder, rank, ranks, what = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.cuda.set_device(rank)
    patience = timedelta(seconds=20 if what == "summing" else 600)
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=ranks, timeout=patience)
    if what == "numbers":
        numbers(folder)
    elif what == "sums":
        sums(init_device_mesh("cuda", (ranks,)))
        print("equal")
    elif what == "summing":
        summing()
    else:
        endless()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
