"""One rank of a test, a process of its own: ``worker.py FOLDER RANK RANKS WHAT``."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch.distributed as dist

import sparsegen as sg
from sparsegen.distributed import group
from sparsegen.run.slow import SlowRunWarning

MESHES = {2: [(2,), (1, 2)], 4: [(2, 2)]}
SHAPE = (46, 61)


@sg.stencil(boundary={0: sg.periodic, 1: (sg.neumann, sg.dirichlet(0.5))})
def heat(u: Any) -> Any:
    return 0.5 * u[0, 0] + 0.13 * (u[-1, 0] + u[1, 0]) + 0.12 * (u[0, -1] + u[0, 1])


@sg.stencil(dtype="f32", boundary=sg.frozen)
def wave(u: sg.Field(levels=2), c: sg.Coef) -> Any:  # type: ignore[valid-type]
    now: Any = u
    around = now[-1, 0] + now[1, 0] + now[0, -1] + now[0, 1]
    return 2 * now[0, 0] - now.prev[0, 0] + c[0, 0] * (around - 4 * now[0, 0])


#: The wave with sites where meshes have their seams, in halos and at edges.
shot = wave.with_sites(
    shot=sg.Source([[22.5, 30.25], [0.0, 60.0]], np.linspace(1.0, -1.0, 5)),
    heard=sg.Receiver([[22.5, 29.5], [23.0, 30.0], [21.25, 11.5], [45.0, 0.0], [40.5, 50.5]]),
)


def numbers(ranks: int) -> None:
    """A stencil, an update and one with sites on each mesh, scattered and gathered; an AssertionError where one process
    differs."""
    rng, rank = np.random.default_rng(7), dist.get_rank()
    from torch.distributed.device_mesh import init_device_mesh

    for sizes in MESHES[ranks]:
        for mesh in (sizes, init_device_mesh("cpu", sizes)):
            k = sg.compile(heat, SHAPE, 7, backend="emulator", schedule="stream levels=3")
            d = sg.distribute(k, mesh, overlap=sizes[0] > 1)
            u = rng.random(SHAPE)
            whole = d.gather(d(d.scatter(u if rank == 1 else None, root=1)), root=1)
            assert (whole is not None) == (rank == 1)
            assert whole is None or (whole.numpy() == k(u)).all()
        k = sg.compile(wave, SHAPE, 5, backend="reference", schedule="stream levels=1")
        given = {name: rng.random(SHAPE).astype("f4") * 0.2 for name in ("new", "old", "c")}
        want = k((given["new"], given["old"]), given["c"])
        d = sg.distribute(k, sizes)
        mine = {name: d.scatter(a if rank == 0 else None) for name, a in given.items()}
        made = d((mine["new"], mine["old"]), c=mine["c"])
        for a, b in zip(made, want, strict=True):
            whole = d.gather(a)
            assert whole is None or (whole.numpy() == b).all()
        k = sg.compile(shot, SHAPE, 5, backend="emulator", schedule="stream levels=2 cols=4")
        (want, _), heard = k((given["new"], given["old"]), given["c"])
        d = sg.distribute(k, sizes)
        (now, _), mine_heard = d((mine["new"], mine["old"]), mine["c"])
        whole = d.gather(now)
        assert whole is None or (whole.numpy() == want).all()
        assert (mine_heard.numpy() == heard).all()
    print("equal", flush=True)


def differ() -> None:
    """Rank 1 has another shape."""
    rows = 40 + dist.get_rank()
    sg.distribute(sg.compile(heat, (rows, 61), 2, backend="reference"), (2,))


def endless() -> None:
    """Steps until somebody ends it, with a checkpoint of each."""
    group.PATIENCE = 8.0  # type: ignore[misc]  # machines of tests are busy
    warnings.simplefilter("ignore", SlowRunWarning)
    d = sg.distribute(sg.compile(heat, SHAPE, 2, backend="reference"), (2,))
    mine = d.scatter(np.ones(SHAPE) if dist.get_rank() == 0 else None)
    for frame in d.run(mine, 10**6, every=3, checkpoint=f"{sys.argv[1]}/run.npz"):
        if frame.step == 9:
            print("running", flush=True)


def absent() -> None:
    """Rank 1 never comes."""
    group.PATIENCE = 2.0  # type: ignore[misc]
    if dist.get_rank():
        sys.stdin.read()
    sg.distribute(sg.compile(heat, SHAPE, 2, backend="reference"), (2,))


def main() -> None:
    folder, rank, ranks, what = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    {"numbers": lambda: numbers(ranks), "differ": differ, "endless": endless, "absent": absent}[what]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
