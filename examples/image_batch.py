"""A batch of images, as bytes, blurred and sharpened in one call each.

    python examples/image_batch.py --picture images.png

The images have their axis first, which the stencil knows nothing of: borders mirror at the edges of each image, and
each comes out as it does by itself.  Results are rounded to whole numbers and kept within 0 and 255.  It all is checked
against a few lines of NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import draw, options

import sparsegen as sg

#: Every neighbour counts the same; and a pixel's difference from its neighbours, added to it.
BOX = np.full((3, 3), 1 / 9)
SHARP = np.array([[0.0, -0.5, 0.0], [-0.5, 3.0, -0.5], [0.0, -0.5, 0.0]])


def images(count: int, size: int) -> Any:
    """Rings on a slope, others in each image, with some noise: [count, size, size] bytes."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size] / size - 0.5
    far = np.hypot(x, y)
    waves = np.array([np.cos(2 * np.pi * (2 + n) * far) for n in range(count)])
    shown = 128 + 60 * np.sign(waves) + 60 * x + rng.normal(0, 8, waves.shape)
    return np.clip(np.rint(shown), 0, 255).astype(np.uint8)


def by_numpy(u: Any, weights: Any) -> Any:
    """What a filter makes of images, in f32, rounded once."""
    wide = np.pad(u, ((0, 0), (1, 1), (1, 1)), "symmetric").astype(np.float32)
    height, width = u.shape[1:]
    total = np.zeros(u.shape, np.float32)
    for (dy, dx), weight in np.ndenumerate(weights.astype(np.float32)):
        total += weight * wide[:, dy : dy + height, dx : dx + width]
    return np.clip(np.rint(total), 0, 255).astype(np.uint8)


def main(argv: Sequence[str] | None = None, boundary: Any = sg.neumann) -> int:
    """1 where a pixel is further than a rounding from what NumPy has."""
    args = options(__doc__, count=4, size=64).parse_args(argv)
    given = images(args.count, args.size)
    shown, ok = [("as they came", given)], True
    for name, weights in (("blurred", BOX), ("sharpened", SHARP)):
        what = sg.Stencil.from_weights(weights, boundary, name, dtype="uint8")
        k = sg.compile(what, given.shape[1:], batch=args.count)
        made = k(given)
        off = np.abs(made.astype(int) - by_numpy(given, weights)).max()
        before, after = (np.diff(u.astype(int)).std() for u in (given, made))
        print(f"{k}\n  neighbours differ by {before:.1f} -> {after:.1f}; from NumPy's by {off} at most")
        ok &= bool(off <= 1)  # sums end in another order of roundings
        shown.append((name, made))

    def paint(figure: Any) -> None:
        for row, (name, found) in zip(figure.subplots(3, args.count, squeeze=False), shown, strict=True):
            for axis, image in zip(row, found, strict=True):
                axis.imshow(image, cmap="Greys_r", vmin=0, vmax=255)
                axis.set(xticks=[], yticks=[])
            row[0].set_ylabel(name)

    draw(args.picture, paint, 2 * args.count, 6)
    print("all images are as NumPy has them" if ok else "some images are not as NumPy has them")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
