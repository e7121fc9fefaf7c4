"""Magicube's end to end: a Transformer with quantised sparse attention against dense, its accuracy and its latency.

    python examples/sparse_transformer.py --quick                # both, small; on a GPU about a minute
    python examples/sparse_transformer.py --json found.json      # the paper's sizes, minutes
    python examples/sparse_transformer.py --accuracy --seed 3    # or --latency, which needs a GPU

An encoder of 4 layers, as in section 5.3 of the paper (SC 2022).  Which keys a query sees is one mask for all heads and
layers, in vectors of 8 queries: a band, and vectors at random.  xb-yb, as the paper has it: q, k and v are rounded to
y bits, the exponentials of the softmax to x; all three of the paper's are there.

Accuracy: the encoder learns, in f32, to say which values stand at a few places anywhere in a sequence, once with dense
attention and once for each mask; then the same weights answer new sequences with quantised attention, without any
tuning to it.  Without a GPU the sizes are smaller, of 2 layers, and the kernels run on the emulator.

Latency: a forward pass in f16, from words to answers.  It is captured in a CUDA graph; after three calls and three
replays, CUDA events are put around each of 30 more, and the median counts, L2 as the last pass left it.  "dense" is
torch's scaled_dot_product_attention without a mask, by flash or cuDNN, the faster of them.  Ours has f16 q, k and v to
quantise and heads to bring together, which is part of the time.  Before, attention is compared with the exact one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np

import sparsegen as sg
from sparsegen.bench.report import columns

HEIGHT = 8
#: Of what stays of a mask, the share that is a band.
BAND = 1 / 8
#: As ``sg.attention`` has them, and how far attention may then be from the exact one, of normal q, k and v, in L2.
PRECISIONS = {
    "16b-8b": ({"bits": 8, "softmax_bits": 16}, 0.03),
    "8b-8b": ({"bits": 8, "softmax_bits": 8}, 0.03),
    "8b-4b": ({"bits": 4, "softmax_bits": 8}, 0.5),
}
#: How far 8 bits may take the scores of the answers from those in f32.
SCORES = 0.05
LAYERS, WIDTH, REPEATS = 4, 64, 30


def mask(length: int, zeros: float, seed: int) -> np.ndarray:
    """[length, length] of bool, in whole vectors of 8 queries and one key, that share of them False."""
    band = sg.pattern.local(length, int((1 - zeros) * length * BAND / 2))
    kept = sg.pattern.vectors(band, HEIGHT)[::HEIGHT].copy()
    free = np.flatnonzero(~kept)
    more = round((1 - zeros) * kept.size) - int(kept.sum())
    kept.flat[np.random.default_rng(seed).choice(free, max(0, more), replace=False)] = True
    return kept.repeat(HEIGHT, 0)[:length]


def accuracy(args: argparse.Namespace, quantised: Any) -> list[dict[str, Any]]:
    """Shares of right answers: a row for dense attention and one for each mask."""
    import _transformer as t

    rows = []
    for zeros in (0.0, *args.zeros):
        seen = mask(args.length, zeros, args.seed) if zeros else None
        t.torch.manual_seed(args.seed)
        model = t.Encoder(args.layers, args.length, args.train_heads, args.d).to(t.DEVICE)
        t.trained(model, t.dense(seen), args.steps, args.train_batch, args.seed)
        test = -(-args.tests // args.train_batch), args.train_batch, args.seed + 1
        right, exact = t.answered(model, t.dense(seen), *test)
        row = {"zeros": zeros, "float": right, "off": {}}
        if seen is not None:
            for name, (bits, _) in PRECISIONS.items():
                attend = quantised(seen, args.train_heads, args.d, args.train_batch, **bits)
                row[name], scores = t.answered(model, attend, *test)
                row["off"][name] = t.distance(scores, exact)
        rows.append(row)
    return rows


def latency(args: argparse.Namespace, quantised: Any) -> list[dict[str, Any]]:
    """Seconds of a forward pass, and errors of attention: a row for each size and mask."""
    import _transformer as t

    rows = []
    for length in args.lengths:
        masks = {zeros: mask(length, zeros, args.seed) for zeros in args.zeros}
        for heads in args.heads:
            t.torch.manual_seed(args.seed)
            model = t.Encoder(args.layers, length, heads, WIDTH).to(t.DEVICE).half()
            for batch in args.batches:
                words, _ = t.sequences(batch, length, t.torch.Generator().manual_seed(args.seed))
                dense, backend = t.fastest_dense(model, words, REPEATS)
                for zeros, seen in masks.items():
                    row = {"length": length, "heads": heads, "batch": batch, "zeros": zeros, "dense": dense}
                    row |= {"backend": backend, "error": {}}
                    for name, (bits, _) in PRECISIONS.items():
                        attend = quantised(seen, heads, WIDTH, batch, **bits)
                        row["error"][name] = t.off(attend, seen, heads, WIDTH, batch, args.seed)
                        row[name] = t.seconds(model, words, attend, REPEATS)
                    rows.append(row)
    return rows


def told_accuracy(rows: list[dict[str, Any]]) -> str:
    """A table of right answers."""
    cells = [["attention", "in f32", *PRECISIONS]]
    for row in rows:
        cells.append([
            f"{row['zeros']:.0%} zeros" if row["zeros"] else "dense", f"{row['float']:.1%}",
            *(f"{row[name]:.1%} ({row['off'][name]:.1%})" if name in row else "–" for name in PRECISIONS),
        ])  # fmt: skip
    return columns(cells)


def told_latency(rows: list[dict[str, Any]]) -> str:
    """A table of milliseconds."""
    cells = [["length", "heads", "batch", "dense", "by", "zeros", *PRECISIONS, "dense over 8b-8b"]]
    for row in rows:
        cells.append([
            *(str(row[name]) for name in ("length", "heads", "batch")), f"{row['dense'] * 1e3:.3f}", row["backend"],
            f"{row['zeros']:.0%}", *(f"{row[name] * 1e3:.3f}" for name in PRECISIONS),
            f"{row['dense'] / row['8b-8b']:.2f}",
        ])  # fmt: skip
    return columns(cells)


def problems(found: dict[str, Any]) -> list[str]:
    """What is wrong with quantised attention, in words."""
    said = []
    for row in found.get("accuracy", ()):
        for name in ("16b-8b", "8b-8b"):
            if not row["off"].get(name, 0) <= SCORES:
                said.append(f"{name} is wrong: scores are off by {row['off'][name]:.1%}, {row['zeros']:.0%} zeros")
    for row in found.get("latency", ()):
        for name, (_, most) in PRECISIONS.items():
            if not row["error"][name] <= most:
                said.append(f"{name} is wrong: attention is off by {row['error'][name]:.1%}, {row['length']} tokens")
    return said


def parsed(argv: Sequence[str] | None, gpu: bool) -> argparse.Namespace:
    """The options; sizes that are not given are by whether there is a GPU, and whether it shall be quick."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, what in (("quick", "small sizes"), ("accuracy", "this part alone"), ("latency", "this part alone")):
        parser.add_argument(f"--{name}", action="store_true", help=what)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--zeros", type=float, nargs="+", help="shares of a mask")
    group = parser.add_argument_group("sizes of the forward pass that is timed")
    for name in ("lengths", "heads", "batches"):
        group.add_argument(f"--{name}", type=int, nargs="+")
    group = parser.add_argument_group("sizes of what is trained")
    for name in ("length", "train-heads", "d", "train-batch", "steps", "tests"):
        group.add_argument(f"--{name}", type=int)
    args = parser.parse_args(argv)
    sizes = {
        "layers": LAYERS if gpu else 2,
        "zeros": [0.9] if args.quick else [0.9, 0.95],
        "lengths": [4096] if args.quick else [4096, 8192],
        "heads": [4] if args.quick else [4, 8],
        "batches": [2, 8],
        "length": 1024 if gpu else 256,
        "train_heads": 4 if gpu else 2,
        "d": 32,
        "train_batch": 32 if gpu else 16,
        "steps": 200 if args.quick else 400,
        "tests": 2048 if gpu else 64,
    }
    for name, size in sizes.items():
        if getattr(args, name) is None:
            setattr(args, name, size)
    return args


def main(argv: Sequence[str] | None = None, quantised: Any = None) -> int:
    """1 where quantised attention is wrong."""
    try:
        import torch
    except ImportError:
        print("this example needs torch (pip install 'sparsegen[torch]')")
        return 0
    import _transformer as t

    gpu, attention = torch.cuda.is_available(), quantised or t.quantised
    args = parsed(argv, gpu)
    where = torch.cuda.get_device_name() if gpu else "no GPU: kernels run on the emulator"
    found: dict[str, Any] = {"device": where, "torch": torch.__version__, "seed": args.seed, "layers": args.layers}
    print(f"{args.layers} layers; on {where}\n")
    if args.accuracy or not args.latency:
        found["accuracy"] = accuracy(args, attention)
        print(
            f"right answers to {args.tests} sequences of {args.length}, {args.train_heads} heads of {args.d}, after "
            f"{args.steps} steps of {args.train_batch}; by chance {1 / t.ANSWERS:.1%}\n"
            "in brackets how far the scores of the answers are from those in f32, in L2"
        )
        print(told_accuracy(found["accuracy"]) + "\n")
    if (args.latency or not args.accuracy) and not gpu:
        print("latency needs a GPU")
    elif args.latency or not args.accuracy:
        found["latency"] = latency(args, attention)
        print(f"ms of a forward pass, f16, heads of {WIDTH}\n{told_latency(found['latency'])}")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    wrong = problems(found)
    print("\n".join(wrong), end="\n" * bool(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
