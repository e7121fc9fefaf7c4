"""What nmSPARSE's layouts of x are for: wavefronts of shared memory for a warp's reads of x, with them and without.

    python examples/nmsparse_ablation.py [--kept 8] [--seed 0] [--rows 256]

A row of W keeps n of every window of m columns; a warp's 32 lanes read the x of one kept column each.

- *windows*: each lane has a window of its own (the paper's SpMV).  With x in its own order the lanes' places are m
  words apart and meet in few banks; stored [offset][window] they are side by side.
- *broadcast*: each lane has a row of its own, all in one window (the paper's SpMM, and our ``nm_lanes``).  The places
  lie within m words, and lanes that read the same one share it: no conflict up to m = 32.

The counts are means over random patterns; a wavefront a read is the least there is.  The second table is of our kernel
for the paper's SpMV, ``nm_windows``: wavefronts of its reads of x by the emulator, of both layouts, and, where there is
a GPU, what a product with ``--rows`` rows of 256 windows takes there.
"""

from __future__ import annotations

import argparse

import numpy as np
from _show import device_seconds

import sparsegen as sg
from sparsegen.ir.layout import bank_degree

LANES = 32
#: Random patterns of a mean.
DRAWS = 200
#: Windows of a row of the kernel's matrix.
WINDOWS = 256


def wavefronts(m: int, kept: int, rng: np.random.Generator) -> tuple[float, float, float]:
    """Wavefronts of a warp's read: windows with x in its own order, windows stored by offsets, broadcast."""
    plain, turned, shared = [], [], []
    for _ in range(DRAWS):
        offsets = [int(rng.choice(rng.permutation(m)[:kept])) for _ in range(LANES)]
        plain.append(bank_degree([lane * m + offset for lane, offset in enumerate(offsets)], 4))
        turned.append(bank_degree([offset * LANES + lane for lane, offset in enumerate(offsets)], 4))
        shared.append(bank_degree(offsets, 4))
    return float(np.mean(plain)), float(np.mean(turned)), float(np.mean(shared))


def kernel(m: int, kept: int, rows: int, rng: np.random.Generator) -> list[tuple[float, float | None]]:
    """Wavefronts of a read of x, and seconds on the GPU that is here, of ``nm_windows`` with each layout of x."""
    w = sg.prune(rng.standard_normal((rows, WINDOWS * m)).astype("f4"), "nm", n=kept, m=m)
    product = sg.spmm(sg.sparse(w, format="nm", n=kept, m=m), n=1)
    found = []
    for layout in ("windows", "offsets"):
        k = sg.compile(product, schedule=f"nm_windows cols=1 warps=8 layout={layout}")
        counts = k.counts()
        found.append((1 + counts["conflicts.shared"] / counts["ld.shared"], device_seconds(k)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Wavefronts of x with and without nmSPARSE's layouts.")
    parser.add_argument("--kept", type=int, default=8, help="columns kept of each window, at most (default: 8)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=256, help="rows of the kernel's matrix (default: 256)")
    args = parser.parse_args()
    if args.kept < 1 or args.rows < 1:
        parser.error("--kept and --rows must be at least 1")
    rng = np.random.default_rng(args.seed)
    print("       windows,       windows,")
    print("  m  x as it is  [offset][window]  broadcast")
    for m in (4, 8, 10, 16, 24, 32, 48, 64):
        plain, turned, shared = wavefronts(m, min(args.kept, m - 1), rng)
        print(f"{m:3d}  {plain:10.2f}  {turned:16.2f}  {shared:9.2f}")
    print("\nof 32 words that a warp reads at once; 1.00: no bank conflict")
    print(f"\nnm_windows, {args.rows} rows of {WINDOWS} windows, one column:")
    for m in (4, 8, 10, 16, 24, 32, 48, 64):
        (plain, slow), (turned, fast) = kernel(m, min(args.kept, m // 2), args.rows, rng)
        times = f", {slow * 1e6:.1f} and {fast * 1e6:.1f} us" if slow and fast else ""
        print(f"  M = {m}: {plain:.2f} wavefronts a read with x as it is, {turned:.2f} by offsets{times}")


if __name__ == "__main__":
    main()
