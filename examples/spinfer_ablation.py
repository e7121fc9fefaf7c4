"""What SpInfer's ideas gain: counts and predicted times with and without them, and measured ones.

    python examples/spinfer_ablation.py [--rows 1024] [--columns 1024] [--n 16] [--zeros 60] [--seed 0]

- *format*: bytes of nested bitmap tiles (TCA-BME) beside other formats', and the operations for each byte of W and x
  that follow: of the format as it is, of one in which it costs nothing to say where values are, and of a dense W.
- *kernel*: the paper's own (``smbd``), plain at first, then one idea after another.  *popc*: population counts of 64
  bits for each bitmap of 8 x 8; *loads*: those from shared memory for each mma, of bitmaps, values and x; *waits* and
  *barriers* of a block for each group tile of 64 x 64: with two slots those of the first tile come on top.
- *ours*: ``bitmap``, which counts 32 bits once for a bitmap's worth of elements: each lane has a mask of its own.

Counts are the emulator's, exact; times are the model's for the profile's GPU (an estimate: the paper's kernel was not
fitted) and, where there is a GPU, measured there, with torch in a CUDA graph, where launches hide behind one another.
"""

from __future__ import annotations

import argparse

import numpy as np
from _show import device_seconds

import sparsegen as sg
from sparsegen.formats import ratio

SIDE, BITMAPS = 64, 64
#: The paper's ideas: each line has one more.
IDEAS = (
    ("plain", "buffers=1 groups=1 two_phase=off ldmatrix=off"),
    ("+ two-phase decoding", "buffers=1 groups=1 two_phase=on ldmatrix=off"),
    ("+ ldmatrix", "buffers=1 groups=1 two_phase=on ldmatrix=on"),
    ("+ two slots", "buffers=2 groups=1 two_phase=on ldmatrix=on"),
    ("+ two groups of copies", "buffers=2 groups=2 two_phase=on ldmatrix=on"),
)


def stored(w: np.ndarray, n: int) -> None:
    """Bytes by format, and what these make of the intensity."""
    (m, k), zeros = w.shape, float((w == 0).mean())
    for name, smaller in ratio.counted(w).items():
        found = f"{2 * m * k / smaller / 1e6:8.3f} MB {smaller:6.3f} {ratio.intensity(m, n, 1 / smaller):7.1f}"
        print(f"  {name:10} {found}")
    for name, share in (("free bits", 1 - zeros), ("dense", 1.0)):
        found = f"{2 * m * k * share / 1e6:8.3f} MB {1 / max(share, 1e-9):6.3f} {ratio.intensity(m, n, share):7.1f}"
        print(f"  {name:10} {found}")


def measured(k: sg.Kernel) -> str:
    """Microseconds on the GPU, if there is one."""
    return f"{seconds * 1e6:9.1f}" if (seconds := device_seconds(k)) else "        –"


def told(k: sg.Kernel, tiles: int, warps: int) -> str:
    """A kernel in counts, of which there are ``tiles`` group tiles in all, and in times."""
    n, turns = k.counts(), tiles * warps
    mma = sum(count for name, count in n.items() if name.startswith("mma."))
    loads = (n["ld.shared"] + n.total.get("ldmatrix", 0)) / mma
    each = f"{n.total.get('popc', 0) / tiles / BITMAPS:5.2f} {loads:6.2f}"
    return f"{each} {n['cp_wait'] / turns:6.2f} {n['barrier'] / turns:9.2f} {k.cost.time * 1e6:8.1f} {measured(k)}"


def kernels(w: np.ndarray, n: int) -> None:
    """The paper's kernel, idea by idea, then splits, then ours."""
    nested, cols = sg.sparse(w, format="tca_bme"), min(64, max(8, 1 << (n - 1).bit_length()))
    product = sg.spmm(nested, n=n)
    tiles = -(-w.shape[0] // SIDE) * -(-w.shape[1] // SIDE) * -(-n // cols)
    print(f"{'':26}  popc  loads  waits  barriers    model  measured")
    for name, words in IDEAS:
        k = sg.compile(product, schedule=f"smbd cols={cols} warps=4 splits=1 {words}")
        print(f"  {name:24} {told(k, tiles, 4)}")
    k = sg.compile(product, schedule=f"smbd cols={cols} {IDEAS[-1][1]}")
    print(f"  {f'+ {k.schedule.splits} splits':24} {told(k, tiles, 4)}")
    ours = sg.compile(sg.spmm(sg.sparse(w, format="bitmap"), n=n), schedule=f"bitmap cols={cols}")
    popc = f"{ours.counts()['popc'] / tiles / BITMAPS:5.2f}"
    print(f"  {'ours (bitmap)':24} {popc} {'':23} {ours.cost.time * 1e6:8.1f} {measured(ours)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="SpInfer's ideas, with and without.")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--columns", type=int, default=1024)
    parser.add_argument("--n", type=int, default=16, help="columns of x (default: 16)")
    parser.add_argument("--zeros", type=int, default=60, help="percent (default: 60)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if min(args.rows, args.columns, args.n) < 1 or args.columns % 4 or not 0 <= args.zeros < 100:
        parser.error("--rows, --columns (a multiple of 4) and --n must be at least 1, --zeros 0 to 99")
    w = ratio.random_weights(args.rows, args.columns, args.zeros / 100, args.seed)
    print(f"{args.rows}x{args.columns}, {args.zeros} % zeros, {args.n} columns\n")
    print("format          bytes  ratio  FLOP a byte")
    stored(w, args.n)
    print("\nthe paper's own kernel, idea by idea, us:")
    kernels(w, args.n)


if __name__ == "__main__":
    main()
