"""Heat on a plate that several processes share: each holds some of its rows, and sends its neighbours what they need.

    torchrun --nproc-per-node 2 examples/heat2d_distributed.py

With a GPU for each process (and the extras `cuda` and `torch`) they run on these and send through NCCL; else on CPUs,
by the reference, through gloo.  The plate is put together at the end, and is that of one process, bit for bit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np

import sparsegen as sg


@sg.stencil(dtype="f64", boundary={0: sg.dirichlet(50.0), 1: sg.periodic})
def heat2d(u):
    return 0.5 * u[0, 0] + 0.125 * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1])


def hot_spots(n: int) -> np.ndarray:
    """The plate at the start, in degrees."""
    y, x = np.mgrid[0:n, 0:n] / n
    return 100.0 * (np.hypot(y - 0.35, x - 0.3) < 0.12) + 60.0 * (np.hypot(y - 0.65, x - 0.7) < 0.18)


def main() -> int:
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        print("this example needs torch: pip install 'sparsegen[torch]'")
        return 0
    if "LOCAL_RANK" not in os.environ:
        print(f"start it with: torchrun --nproc-per-node 2 {sys.argv[0]}")
        return 0
    local = int(os.environ["LOCAL_RANK"])
    gpus = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    if gpus:
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if gpus else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    # 1. The kernel of the whole plate, as for one process, and its part of it on each of them.
    n, steps = (4096, 1000) if gpus else (210, 25)
    k = sg.compile(heat2d, shape=(n, n), steps=steps, backend="cuda" if gpus else "reference")
    d = sg.distribute(k, mesh=(ranks,))
    print(f"rank {rank}: rows {d.block[0].start} to {d.block[0].stop - 1} of {n}, on {k.backend}", flush=True)

    # 2. Rank 0 has the plate; all get their rows, do the steps, and give theirs back.
    u0 = hot_spots(n) if rank == 0 else None
    mine = d.scatter(u0)
    u1 = d.gather(d(mine))

    # 3. What it is predicted to cost on GPUs, and the same numbers as from one process.
    same = True
    if rank == 0:
        print(d.explain())
        alone = k(torch.as_tensor(u0).to(u1.device))
        same = bool((u1 == alone).all())
        print(f"mean temperature: {u0.mean():.4f} -> {float(u1.mean()):.4f} degrees")
        print(f"{ranks} processes and one: {'equal, bit for bit' if same else 'NOT equal'}", flush=True)
    dist.destroy_process_group()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
