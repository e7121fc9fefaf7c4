"""One rank of a test over MPI: ``mpiexec -n 2 python mpi_worker.py FOLDER WHAT``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from mpi4py import MPI

import sparsegen as sg
from sparsegen.distributed import group
from tests.distributed.worker import SHAPE, heat, wave

COMM = MPI.COMM_WORLD


def numbers(folder: str) -> None:
    """The numbers of one process, in a row and in a square, and of a run that goes on on one process."""
    rng = np.random.default_rng(7)
    for comm in (COMM, COMM.Create_cart((1, COMM.Get_size()))):
        k = sg.compile(heat, SHAPE, 7, backend="emulator", device="h200", schedule="stream levels=3")
        d, u = sg.distribute(k, comm), rng.random(SHAPE)
        whole = d.gather(d(d.scatter(u if comm.Get_rank() == 1 else None, root=1)), root=1)
        assert (whole is not None) == (comm.Get_rank() == 1)
        assert whole is None or (whole.numpy() == k(u)).all()
        assert not d.overlapped
    k = sg.compile(wave, SHAPE, 5, backend="reference")
    new, old, c = rng.random((3, *SHAPE)).astype("f4") * 0.2
    d, file = sg.distribute(k, COMM), f"{folder}/run.npz"
    mine = [np.ascontiguousarray(a[d.block]) for a in (new, old, c)]
    *_, frame = d.run((mine[0], mine[1]), mine[2], 6, every=2, checkpoint=file)
    if COMM.Get_rank() == 0:
        *_, want = k.run((new, old), c, 9, checkpoint=file, resume=True)
        assert (want["u"] == k((new, old), c, steps=9)[0]).all()
    COMM.Barrier()
    *_, frame = d.run((mine[0], mine[1]), mine[2], 9, checkpoint=file, resume=True)
    assert (frame["u"] == k((new, old), c, steps=9)[0][d.block]).all()
    print("equal", flush=True)


def differ() -> None:
    """Ranks of other shapes are told; a rank that stands still is noticed."""
    rows = 40 + COMM.Get_rank()
    try:
        sg.distribute(sg.compile(heat, (rows, 61), 2, backend="reference"), COMM)
    except sg.DeviceError as error:
        assert "another shape than rank" in str(error)
        print("told", flush=True)
    d = sg.distribute(sg.compile(heat, SHAPE, 2, backend="reference"), COMM)
    group.PATIENCE = 1.0  # type: ignore[misc]
    if COMM.Get_rank():
        time.sleep(5)
        return
    d(np.zeros(d.block_shape))


if __name__ == "__main__":
    numbers(sys.argv[1]) if sys.argv[2] == "numbers" else differ()
