"""What Magicube's ideas gain: bank conflicts, bytes and predicted times with and without them, and measured ones.

    python examples/magicube_ablation.py [--rows 256] [--columns 2304] [--n 512] [--seed 0]

W is of 8 bits in random vectors of 8 rows, at the size of the paper's ablation.

- *order*: eight rows of x are read from shared memory at once, of the eight vectors that follow one another in a step.
  Vectors of a vector row may come in any order: ours is one in which the eight lie in columns that differ modulo 8, and
  so in different banks.  What is counted are passes of shared memory for eight rows; 1.00 is the least there is.
- *strip or gather*: x in shared memory before the first product, or row by row as vectors name them.
- *parts*: products begin when the first part of a strip is there.  *unroll*: indices and values of so many steps are
  prefetched to registers.  *stages*: rows of x of so many steps are on their way (the paper prefetches one step).
  *cut*: vector rows of many steps go to several warps.
- *paper*: the paper's own kernel, and its ideas one after another: padding against bank conflicts, the shuffle of
  columns that turns digits of 4 bits, the prefetch of x's rows.
- *types*: operands of 16 bits are multiplied digit by digit, and x of 4 bits takes half the bytes.

Counts are the emulator's, exact; times are the model's for the profile's GPU and, where there is a GPU, measured there,
with torch in a CUDA graph, where launches hide behind one another.
"""

from __future__ import annotations

import argparse
import re

import numpy as np
from _show import device_seconds

import sparsegen as sg
from sparsegen.products.vectors import steps_of

ZEROS = (0.7, 0.9, 0.98)
HEIGHT, STEP, EIGHT = 8, 32, 8
#: What numbers of each type are drawn from.
RANGES = {"i4": (-8, 8), "i8": (-128, 128), "i16": (-32768, 32768)}
PAIRS = (("i8", "i8"), ("i16", "i8"), ("i16", "i16"), ("i8", "i4"), ("i4", "i4"))
#: Words of the model's choice that are changed, one at a time.
WORDS = {
    "vector_strip": {"parts": (1, 2, 4), "unroll": (1, 2, 4)},
    "vector_gather": {"stages": (2, 4, 8)},
}


def matrix(rows: int, columns: int, zeros: float, seed: int, kind: str = "i8") -> sg.SparseMatrix:
    """Random vectors."""
    rng = np.random.default_rng(seed)
    w = rng.integers(*RANGES[kind], (rows, columns)).astype("i2" if kind == "i16" else "i1")
    w[(rng.random((-(-rows // HEIGHT), columns)) < zeros).repeat(HEIGHT, 0)[:rows]] = 0
    return sg.sparse(w, format="sr_bcrs", height=HEIGHT, dtype=kind)


def passes(columns: np.ndarray) -> float:
    """Passes of shared memory for the rows of x of eight columns, [eights, 8]; the same row twice is read once."""
    found = []
    for eight in columns.reshape(-1, EIGHT):
        classes = np.unique(eight) % EIGHT
        found.append(int(np.bincount(classes).max()))
    return float(np.mean(found))


def orders(w: sg.SparseMatrix) -> tuple[float, float]:
    """Passes for eight vectors as they lie in W, ascending, and in the order of our steps."""
    cut, ascending = steps_of(w), []
    for first, last in zip(cut.begin * STEP, cut.end * STEP, strict=True):
        there = cut.there[first:last]
        own = np.array(cut.column[first:last])
        own[there] = np.sort(own[there])
        ascending.append(own)
    return passes(np.concatenate(ascending)), passes(np.asarray(cut.column))


def told(k: sg.Kernel) -> str:
    """A kernel in numbers: passes of a read of eight rows, bytes that come from L2, times."""
    n, pieces = k.counts(), 4 * k.counts()["ldmatrix"]  # four times eight rows each
    read = n["bytes.global.read"] + n.total.get("bytes.tensor", 0)
    mma = sum(count for name, count in n.items() if name.startswith("mma."))
    measured = f"{seconds * 1e6:9.1f}" if (seconds := device_seconds(k)) else "        –"
    each = 1 + n["conflicts.shared"] / pieces
    return f"{each:6.2f} {read / 1e6:7.2f} {mma:8d} {k.cost.time * 1e6:7.1f} {measured}  {k.schedule}"


HEAD = f"{'':24} passes      MB      mma   model  measured"


def variants(product: sg.Product) -> None:
    """The model's best schedule of each family, and it with one word changed."""
    cut = steps_of(product.w)
    whole = max(1, int((cut.end - cut.begin).max()))  # no vector row has more steps
    for family, words in WORDS.items():
        best = str(sg.compile(product, schedule=family).schedule)
        print(f"{family:24} {told(sg.compile(product, schedule=best))}")
        for name, values in {**words, "cut": (whole,)}.items():
            for value in values:
                line = re.sub(rf"\b{name}=\d+", f"{name}={value}", best)
                if line != best:
                    print(f"  {name}={value:<{21 - len(name)}} {told(sg.compile(product, schedule=line))}")


#: The paper's ideas in its order (figure 11), by the types of both operands: each line has one more.
IDEAS = {
    "i8": ("pad=off prefetch=off", "pad=on prefetch=off", "pad=on prefetch=on"),
    "i4": ("pad=off shuffle=off prefetch=off", "pad=on shuffle=off prefetch=off", "pad=on shuffle=on prefetch=off",
           "pad=on shuffle=on prefetch=on"),
}  # fmt: skip


def paper(kind: str, args: argparse.Namespace) -> None:
    """The paper's own kernel, idea by idea: passes of a read of shared memory, of which there is one for each mma."""
    product = sg.spmm(matrix(args.rows, args.columns, ZEROS[0], args.seed, kind), n=args.n, x_dtype=kind)
    for line in IDEAS[kind]:
        k = sg.compile(product, schedule=f"vector_block wide=64 {line}")
        n = k.counts()
        mma = sum(count for name, count in n.items() if name.startswith("mma."))
        bits = sum(count for name, count in n.items() if name.split(".")[0] in ("and", "or", "shl", "shr"))
        measured = f"{seconds * 1e6:9.1f}" if (seconds := device_seconds(k)) else "        –"
        each = f"{1 + n['conflicts.shared'] / mma:6.2f} {bits / mma:8.1f}"
        print(f"  {line:34} {each} {k.cost.time * 1e6:7.1f} {measured}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Magicube's ideas, with and without.")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--columns", type=int, default=2304)
    parser.add_argument("--n", type=int, default=512, help="columns of x (default: 512)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if min(args.rows, args.columns, args.n) < 1:
        parser.error("--rows, --columns and --n must be at least 1")
    print("order of vectors: passes of shared memory for eight rows of x\n  zeros  ascending  ours")
    for zeros in ZEROS:
        as_it_is, ours = orders(matrix(args.rows, args.columns, zeros, args.seed))
        print(f"  {zeros:5.0%}  {as_it_is:9.2f}  {ours:4.2f}")
    for zeros in ZEROS:
        print(f"\n{args.rows}x{args.columns}, {args.n} columns, {zeros:.0%} zeros, us:\n{HEAD}")
        variants(sg.spmm(matrix(args.rows, args.columns, zeros, args.seed), n=args.n))
    for kind in IDEAS:
        name = f"the paper's own kernel, L{kind[1:]}-R{kind[1:]}, {ZEROS[0]:.0%} zeros, us:"
        print(f"\n{name}\n{'':36} passes bits/mma   model  measured")
        paper(kind, args)
    print(f"\ntypes of W and x, {ZEROS[1]:.0%} zeros:\n{HEAD}")
    for kinds in PAIRS:
        w = matrix(args.rows, args.columns, ZEROS[1], args.seed, kinds[0])
        name = f"L{kinds[0][1:]}-R{kinds[1][1:]}"
        print(f"{name:24} {told(sg.compile(sg.spmm(w, n=args.n, x_dtype=kinds[1])))}")


if __name__ == "__main__":
    main()
