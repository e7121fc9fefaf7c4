"""Fields of bytes: worked out in f32, rounded to nearest even and kept within 0 and 255 at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sparsegen as sg

BOX = np.full((3, 3), 1 / 9)
SHARP = np.array([[0.0, -1.0, 0.0], [-1.0, 5.0, -1.0], [0.0, -1.0, 0.0]])
#: Halves come about, which are rounded to the even neighbour.
HALVES = np.array([[0.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 0.0]])
SHAPE = (13, 37)


def compiled(what: Any, **options: Any) -> sg.Kernel:
    return sg.compile(what, SHAPE, **{"backend": "emulator", "device": "h100", **options})


def images(count: int = 3) -> Any:
    return np.random.default_rng(0).integers(0, 256, (count, *SHAPE), np.uint8)


def plain(u: Any, weights: Any) -> Any:
    """A step with edges that mirror, in f32, tap by tap."""
    wide = np.pad(u, [(0, 0)] * (u.ndim - 2) + [(1, 1)] * 2, "symmetric").astype(np.float32)
    total = np.zeros(u.shape, np.float32)
    for dy in range(3):
        for dx in range(3):
            total += np.float32(weights[dy, dx]) * wide[..., dy : dy + u.shape[-2], dx : dx + u.shape[-1]]
    return np.clip(np.rint(total), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("weights", [BOX, SHARP, HALVES], ids=["box", "sharp", "halves"])
@pytest.mark.parametrize("backend", ["emulator", "reference"])
def test_bytes_are_rounded_at_every_step(weights: Any, backend: str) -> None:
    what, u = sg.Stencil.from_weights(weights, boundary=sg.neumann, dtype="uint8"), images()
    k = compiled(what, steps=2, batch=3, backend=backend)
    made = k(u)
    assert made.dtype == np.uint8
    assert np.array_equal(made, plain(plain(u, weights), weights))


@pytest.mark.parametrize("boundary", [sg.periodic, sg.dirichlet(17), sg.frozen], ids=["periodic", "value", "frozen"])
def test_borders_of_bytes(boundary: Any) -> None:
    what, u = sg.Stencil.from_weights(SHARP, boundary=boundary, dtype=np.uint8), images()
    k = compiled(what, batch=3)
    assert np.array_equal(k(u), compiled(what, batch=3, backend="reference")(u))
    assert str(k.check(u)) == "0 errors, 0 notes"


@pytest.mark.parametrize("line", ["direct", "direct column=4"])
def test_updates_of_bytes(line: str) -> None:
    @sg.stencil(dtype="uint8", boundary=sg.dirichlet(3))
    def edges(u: sg.Field, mask: sg.Coef, gain: sg.Scalar) -> sg.Value:
        across, down = u[0, 1] - u[0, -1], u[1, 0] - u[-1, 0]
        return gain * sg.sqrt(across**2 + down**2) * mask[0, 0] / 255

    mask, u = images(1)[0], images()
    given = {"u": u, "mask": mask, "gain": 0.7}
    k = compiled(edges, batch=3, shared="mask", schedule=line)
    assert np.array_equal(k(**given), compiled(edges, batch=3, shared="mask", backend="reference")(**given))
    assert str(k.check()) == "0 errors, 0 notes"


def test_no_number_becomes_zero() -> None:
    @sg.stencil(dtype="uint8")
    def root(u: sg.Field) -> sg.Value:
        return sg.sqrt(u[0, 0] - 100)

    u = np.arange(13 * 37, dtype=np.int64).reshape(SHAPE).astype(np.uint8)
    want = np.where(u < 100, 0, np.rint(np.sqrt(np.maximum(u.astype(np.float32) - 100, 0)))).astype(np.uint8)
    for backend in ("emulator", "reference"):
        assert np.array_equal(compiled(root, backend=backend)(u), want)


def test_schedules_that_round_once_a_pass_are_not_taken() -> None:
    what = sg.Stencil.from_weights(BOX, dtype="uint8")
    assert {c.schedule.family for c in sg.schedules(what, SHAPE, device="h100")} == {"direct"}
    assert all(c.schedule.steps == 1 for c in sg.schedules(what, SHAPE, device="h100"))
    for line in ("tiled", "stream levels=1", "direct fuse=2"):
        with pytest.raises(sg.ScheduleError, match="does not round to bytes"):
            compiled(what, steps=4, schedule=line)
    with pytest.raises(sg.ScheduleError, match="does not round to bytes"):
        compiled(what.as_update(), steps=4, schedule="tiled levels=2")


def test_refused() -> None:
    for outside in (0.5, -1, 256):
        with pytest.raises(sg.BoundaryError, match="is no number of u8"):
            sg.Stencil.from_weights(BOX, boundary=sg.dirichlet(outside), dtype="uint8")
    k = compiled(sg.Stencil.from_weights(BOX, dtype="uint8"))
    with pytest.raises(sg.StencilError, match="rounds its cells to bytes"):
        k.adjoint()
    with pytest.raises(sg.ArrayError, match="float32"):
        k(np.zeros(SHAPE, np.float32))


def test_a_pass_that_leaves_bytes_out_is_found() -> None:
    """What marks bytes that were not written is a byte like others: results beside it are no error, others are."""
    from sparsegen.run import emulator

    k = compiled(sg.Stencil.from_weights(BOX, dtype="uint8"))
    u = np.full(SHAPE, 85, np.uint8)
    assert not k.check(u).errors
    plan = k._plan(1)
    report = emulator.check(plan, {"in": u}, lambda steps: {"out": np.full(SHAPE, 87, np.uint8)})
    assert [error.kind for error in report.errors] == ["unwritten"]
