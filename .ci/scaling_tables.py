"""Writes docs/scaling.md from the cost model's plans; ``--check`` only says whether the file is current."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sparsegen.cost.devices import load_profile  # noqa: E402
from sparsegen.distributed.model import link_of  # noqa: E402
from sparsegen.distributed.scaling import ENOUGH, tables  # noqa: E402

TARGET = ROOT / "docs" / "scaling.md"
DEVICE = "h100"
HEAD = """\
# Many GPUs

Made by `.ci/scaling_tables.py` from the cost model; only the links within a node were measured. For each
number of GPUs it is the mesh (one axis, or two), the schedule, and one piece a block or two that the model predicts to
be the fastest, for a GPU in the middle of the mesh: its pieces with their halos, and its messages. A pass of two pieces
takes the longer of work and exchange, twice; *hidden* is the share of the exchange that work hides.

The device is {name}. Its links are those of the profile's table `[link]`: {gbs:g} GB/s a direction between {gpus} GPUs
of a node and {near:g} µs for the shortest message, as measured between two H200; between nodes **nominal**
{network_gbs:g} GB/s a GPU, and {far:g} µs are assumed. The network is taken to be free of contention. To plan for your
own machines, write your figures into the table `[link]` of a profile; `torchrun --nproc-per-node 2 -m
sparsegen.bench.distributed_run` measures the bytes a second within a node.

The efficiency is that of one GPU which has as many cells as each of two GPUs in the suite, a time step and cell, over
the same with all of them; a form *scales* as far as that is {enough:.0%} or more. What grows with the number of GPUs
scales as far as was tried, since what a GPU sends stays the same. A domain of one size does not: halos become a
larger part of blocks, then the latency of messages is all there is, and passes of fewer steps no longer help.

"""


def text() -> str:
    """The whole file."""
    device = load_profile(DEVICE)
    link = link_of(device)
    head = HEAD.format(
        name=device.name, gbs=link.gbs, gpus=link.gpus, network_gbs=link.network_gbs, near=link.latency_s * 1e6,
        far=link.network_latency_s * 1e6, enough=ENOUGH,
    )  # fmt: skip
    return head + tables(DEVICE) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        current = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text()
        print(f"docs/scaling.md is {'current' if current else 'old: run python .ci/scaling_tables.py'}")
        return 0 if current else 1
    TARGET.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
