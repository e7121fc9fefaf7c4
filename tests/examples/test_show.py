"""``sg.plot`` and ``sg.animate``: what is in the picture, and what a user is told where there can be none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sparsegen as sg
from tests.refusals import refusal


@pytest.fixture
def matplotlib() -> Any:
    return pytest.importorskip("matplotlib")


def frames(count: int = 3) -> list[sg.Frame]:
    y, x = np.mgrid[0:20, 0:30]
    return [sg.Frame(10 * i, (0.0 * y + i, (x + y + 0.5 * i, x)), ("a", "b")) for i in range(count)]


def images(figure: Any) -> list[Any]:
    return [axes.images[0] for axes in figure.axes if axes.images]


def test_one_axis_is_a_line(matplotlib: Any) -> None:
    u = np.sin(np.arange(50, dtype=np.float32))
    (axes,) = sg.plot(u, title="sine").axes
    assert np.array_equal(axes.lines[0].get_ydata(), u) and axes.figure.get_suptitle() == "sine"
    low, high = axes.get_ylim()
    assert low < u.min() and high > u.max()
    assert sg.plot(u, limits=(0, 10)).axes[0].get_ylim() == (-0.5, 10.5)


def test_two_axes_are_an_image(matplotlib: Any, tmp_path: Path) -> None:
    frame = frames()[2]
    figure = sg.plot(frame, field="b")
    (image,) = images(figure)
    assert np.array_equal(image.get_array(), frame["b"]) and image.get_clim() == (1, 49)
    assert figure.get_suptitle() == "step 20" and images(sg.plot(frame))[0].get_clim() == (1.8, 2.2)
    figure.savefig(tmp_path / "b.png")
    bits = np.ones((4, 4), ml_dtypes.bfloat16)
    bits[0] = np.nan
    assert images(sg.plot(bits))[0].get_clim() == (0.9, 1.1)


def test_three_axes_are_slices(matplotlib: Any) -> None:
    u = np.random.default_rng(0).random((4, 6, 8))
    shown = [image.get_array() for image in images(sg.plot(u, limits=(0, 2)))]
    for got, want in zip(shown, (u[2], u[:, 3], u[:, :, 4]), strict=True):
        assert np.array_equal(got, want)


def test_tensors_are_shown(matplotlib: Any) -> None:
    torch = pytest.importorskip("torch")
    u = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4).requires_grad_()
    assert images(sg.plot(u))[0].get_clim() == (0, 11)


class OnDevice:
    """An array of a GPU, as CuPy and pycuda have them: only ``get`` reads it."""

    def __init__(self, held: Any) -> None:
        self.get = held.copy
        self.__cuda_array_interface__ = {
            "data": (0, False), "typestr": held.dtype.str, "shape": held.shape, "version": 3,
        }  # fmt: skip


def test_device_arrays_are_shown(matplotlib: Any) -> None:
    held = np.arange(12.0).reshape(3, 4)
    assert np.array_equal(images(sg.plot(OnDevice(held)))[0].get_array(), held)


def test_a_movie_has_every_frame(matplotlib: Any, tmp_path: Path) -> None:
    pil = pytest.importorskip("PIL.Image")
    made = sg.animate(iter(frames(4)), tmp_path / "b.gif", field="b", fps=5)
    assert made == tmp_path / "b.gif" and [file.name for file in tmp_path.iterdir()] == ["b.gif"]
    with pil.open(made) as movie:
        assert movie.n_frames == 4 and movie.info["duration"] == 200
        seen = []
        for at in range(4):
            movie.seek(at)
            seen.append(movie.convert("L").tobytes())
    assert len({*seen}) == 4


def test_a_movie_that_ends_early_leaves_nothing(matplotlib: Any, tmp_path: Path) -> None:
    file = tmp_path / "b.gif"
    file.write_bytes(b"before")

    def failing() -> Any:
        yield frames()[0]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sg.animate(failing(), file)
    refusal(__file__, sg.RunError, lambda: sg.animate([], file), "there are no frames")  # here
    other = [np.ones(3), np.ones(4)]
    refusal(__file__, sg.ArrayError, lambda: sg.animate(other, file), "(4,) after one of (3,)")  # here
    assert file.read_bytes() == b"before" and len([*tmp_path.iterdir()]) == 1


def test_wrong_pictures_are_refused(matplotlib: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = frames()[0]
    refusal(__file__, sg.ArrayError, lambda: sg.plot(frame, field="c"), "one of a, b")  # here
    refusal(__file__, sg.ArrayError, lambda: sg.plot(np.ones(4), field="a"), "of an array")  # here
    refusal(__file__, sg.ArrayError, lambda: sg.plot(frame.fields), "u[0]")  # here
    refusal(__file__, sg.ArrayError, lambda: sg.plot(np.ones((2, 2, 2, 2))), "(2, 2, 2, 2)")  # here
    refusal(__file__, sg.ArrayError, lambda: sg.plot(np.ones(3, complex)), "complex128")  # here
    refusal(__file__, sg.ArrayError, lambda: sg.plot([1, 2]), "np.asarray")  # here
    refusal(__file__, sg.RunError, lambda: sg.animate([frame], tmp_path / "a.avi"), ".gif or .mp4")  # here
    refusal(__file__, sg.RunError, lambda: sg.animate([frame], tmp_path / "none" / "a.gif"), "cannot write")  # here
    monkeypatch.setenv("PATH", "")
    from matplotlib.animation import FFMpegWriter

    if not FFMpegWriter.isAvailable():
        refusal(__file__, sg.RunError, lambda: sg.animate([frame], tmp_path / "a.mp4"), "conda install ffmpeg")  # here


def test_without_matplotlib_a_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for part in ("matplotlib", "matplotlib.figure", "matplotlib.animation"):
        monkeypatch.setitem(sys.modules, part, None)
    refusal(__file__, sg.RunError, lambda: sg.plot(np.ones(4)), "pip install 'sparsegen[plot]'")  # here
    refusal(__file__, sg.RunError, lambda: sg.animate([np.ones(4)], tmp_path / "a.gif"), "sparsegen[plot]")  # here
