"""Pictures of fields: a line, an image, or three slices; and movies of a run's frames.  Needs the extra ``plot``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsegen.arrays import copied
from sparsegen.callsite import located, user_loc
from sparsegen.files import whole
from sparsegen.frame import Frame
from sparsegen.ir.errors import ArrayError, RunError

Numbers = npt.NDArray[Any]
Limits = tuple[float, float]


def plot(u: Any, *, field: str | None = None, limits: Limits | None = None, title: str | None = None) -> Any:
    """A matplotlib Figure of a field: a line of one axis, an image of two, of three the slices through the middle.

    ``u``: an array of NumPy, torch, CuPy, pycuda or numba, wherever it is, or a :class:`Frame`, of which ``field`` is
    shown (default: the first).  ``limits``: the least and the greatest value that the colours (of a line: its axis)
    tell apart; default: those of ``u``.  ``title``: default the step of a frame.  ``figure.savefig(path)`` saves it.

    ArrayError for an array of other axes or of no real numbers; RunError without matplotlib.
    """
    with located(user_loc()):
        return _Picture(_numbers(u, field), limits, _title(u, title)).figure


def animate(
    frames: Iterable[Any],
    path: str | Path,
    *,
    field: str | None = None,
    limits: Limits | None = None,
    title: str | None = None,
    fps: int = 10,
) -> Path:
    """A movie of frames as ``plot`` shows each, ``fps`` a second; its path, which ends with .gif (pillow) or .mp4.

    ``frames``: what ``k.run`` gives, or arrays; they are taken one by one, so a run of any length needs no memory for
    them.  ``limits``: default those of all frames so far.  An .mp4 needs ffmpeg.  The file is written whole or not at
    all.  RunError for another suffix, without matplotlib or ffmpeg, or where there is no frame.
    """
    with located(user_loc()):
        file = Path(path)
        writer = _writer(file, fps)
        picture: _Picture | None = None
        with whole(file, RunError) as temporary:
            made = temporary.with_suffix(file.suffix)
            try:
                for frame in frames:
                    u, said = _numbers(frame, field), _title(frame, title)
                    if picture is None:
                        picture = _Picture(u, limits, said)
                        writer.setup(picture.figure, str(made), dpi=100)
                    else:
                        picture.show(u, said)
                    writer.grab_frame()
                if picture is None:
                    raise RunError(
                        "there are no frames", hint="pass what k.run(...) gives, which can be gone through once"
                    )
                writer.finish()
                made.replace(temporary)
            finally:
                made.unlink(missing_ok=True)
        return file


class _Picture:
    """A figure whose field can be exchanged for another one of the same shape."""

    def __init__(self, u: Numbers, limits: Limits | None, title: str) -> None:
        self.figure = _matplotlib("figure").Figure(figsize=(10 if u.ndim == 3 else 5, 4), layout="constrained")
        self._fixed, self._span = limits, limits or _span(u)
        self._shape, self._artists = u.shape, list[Callable[[Numbers], None]]()
        self._images: list[Any] = []
        self._axes = self.figure.subplots(1, 3 if u.ndim == 3 else 1, squeeze=False)[0]
        if u.ndim == 1:
            (line,) = self._axes[0].plot(u)
            self._artists.append(line.set_ydata)
            self._axes[0].set_xlabel("axis 0")
        for axes, (plane, across) in zip(self._axes, _planes(u), strict=False):
            image = axes.imshow(plane)
            self._images.append(image)
            self._artists.append(image.set_data)
            axes.set(ylabel=f"axis {across[0]}", xlabel=f"axis {across[1]}")
        if self._images:
            self.figure.colorbar(self._images[-1], ax=list(self._axes))
        self.show(u, title)

    def show(self, u: Numbers, title: str) -> None:
        """Draw another field; ArrayError if its shape is another one."""
        if u.shape != self._shape:
            raise ArrayError(f"a frame of shape {u.shape} after one of {self._shape}", hint="show frames of one run")
        if self._fixed is None:
            low, high = _span(u)
            self._span = min(self._span[0], low), max(self._span[1], high)
        for draw, part in zip(self._artists, [u] if u.ndim == 1 else [p for p, _ in _planes(u)], strict=True):
            draw(part)
        for image in self._images:
            image.set_clim(*self._span)
        if u.ndim == 1:
            margin = 0.05 * (self._span[1] - self._span[0]) or 1.0
            self._axes[0].set_ylim(self._span[0] - margin, self._span[1] + margin)
        self.figure.suptitle(title)


def _planes(u: Numbers) -> list[tuple[Numbers, tuple[int, int]]]:
    """What images show, each with the axes that go down and across."""
    if u.ndim != 3:
        return [(u, (0, 1))] * (u.ndim == 2)
    a, b, c = (n // 2 for n in u.shape)
    return [(u[a], (1, 2)), (u[:, b], (0, 2)), (u[:, :, c], (0, 1))]


def _span(u: Numbers) -> Limits:
    """The least and the greatest number; 0 and 1 where there is none."""
    finite = u[np.isfinite(u)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _numbers(u: Any, field: str | None) -> Numbers:
    """What is to be shown, in f64 at most on the host; ArrayError for what cannot be."""
    if isinstance(u, Frame):
        name = u.names[0] if field is None else field
        if name not in u.names:
            raise ArrayError(f"field={name!r} is no field of the frame", hint=f"one of {', '.join(u.names)}")
        u = u[name]
    elif field is not None:
        raise ArrayError(f"field={field!r} of an array", hint="leave field away: it is for frames of k.run")
    elif isinstance(u, tuple):
        raise ArrayError(f"{len(u)} arrays at once", hint="pass one of them, such as the newest level: u[0]")
    found = copied(u)
    if not 1 <= found.ndim <= 3 or not found.size or np.issubdtype(found.dtype, np.complexfloating):
        what = f"an array of shape {found.shape} and dtype {found.dtype}"
        raise ArrayError(f"{what} cannot be shown", hint="pass real numbers on one, two or three axes")
    return found.astype(np.float64 if found.dtype == np.float64 else np.float32)


def _title(u: Any, title: str | None) -> str:
    return (f"step {u.step}" if isinstance(u, Frame) else "") if title is None else title


def _writer(file: Path, fps: int) -> Any:
    """What writes the movie; RunError if nothing here can."""
    animation = _matplotlib("animation")
    if file.suffix == ".gif":
        return animation.PillowWriter(fps=fps)
    if file.suffix != ".mp4":
        raise RunError(f"cannot make a movie as {file.name!r}", hint="name a file that ends with .gif or .mp4")
    if not animation.FFMpegWriter.isAvailable():
        raise RunError(
            "an .mp4 needs the program ffmpeg, which is not on PATH",
            hint="install it (apt install ffmpeg, conda install ffmpeg), or name a file that ends with .gif",
        )
    return animation.FFMpegWriter(fps=fps)


def _matplotlib(part: str) -> Any:
    try:
        return import_module(f"matplotlib.{part}")
    except ImportError as e:
        raise RunError("pictures need matplotlib, which is not installed", hint="pip install 'sparsegen[plot]'") from e
