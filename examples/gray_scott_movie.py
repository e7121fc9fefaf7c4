"""A movie of spots that divide, from a run that goes on where it was interrupted.

    python examples/gray_scott_movie.py --movie spots.gif            # 64 x 64 cells on the emulator
    python examples/gray_scott_movie.py --size 1024 --steps 20000 --every 100 --movie spots.mp4 --checkpoint spots.npz

The formula and the start are those of gray_scott.py.  ``k.run`` hands out a frame every few steps, ``sg.animate`` draws
each as it comes; with a checkpoint the second command may be killed and given again, and draws what is left.  In every
frame both substances are between none and the most that there was at the start, and the spots spread.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

from _show import options
from gray_scott import gray_scott, start

import sparsegen as sg


def main(argv: Sequence[str] | None = None, update: sg.Update = gray_scott) -> int:
    """1 where there is less than nothing of a substance, or too much, or the spots do not spread."""
    parser = options(__doc__, size=64, steps=400, every=40)
    parser.add_argument("--movie", type=Path, metavar="FILE.gif", help="draw it there, or as .mp4 (needs matplotlib)")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE.npz", help="go on from it, and keep the state there")
    args = parser.parse_args(argv)
    k = sg.compile(update, shape=(args.size, args.size), steps=args.every)
    print(f"{args.size}x{args.size} cells, {args.steps} time steps, on {k.backend}: {k.schedule}\n")
    u, v = start(args.size)
    covered, shares = [float((v > 0.1).mean())], list[float]()  # cells that have spots; the extremes of both fields
    resume = args.checkpoint is not None

    def watched() -> Iterator[sg.Frame]:
        for frame in k.run(u, v, args.steps, every=args.every, checkpoint=args.checkpoint, resume=resume):
            covered.append(float((frame["v"] > 0.1).mean()))
            shares.extend(float(end) for name in "uv" for end in (frame[name].min(), frame[name].max()))
            print(f"after {frame.step} steps spots cover {covered[-1]:.1%} of the cells")
            yield frame

    if args.movie is not None:
        try:
            print(f"wrote {sg.animate(watched(), args.movie, field='v', limits=(0, 0.4)).resolve()}")
        except sg.RunError as error:
            print(f"no movie: {error.message} ({error.hint})")
    if not shares:  # nobody has watched
        collections.deque(watched(), maxlen=0)

    if not 0 <= min(shares) <= max(shares) <= float(u.max()):
        print(f"the shares are from {min(shares):.3f} to {max(shares):.3f}")
        return 1
    if not covered[-1] > covered[0]:
        print("the spots did not spread")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
