"""What a random stencil with a random schedule must do on the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import note

from tests.schedules import Field, device, emulate, faults, lowered, random_field


def agrees(case: tuple[Any, ...]) -> Field:
    """No finding, the reference's numbers, and the same bits in another order of warps; the field that comes out.

    ``case``: stencil, shape, schedule, pitch of input and output, blocks at a time, seed of the field.
    """
    s, shape, value, pitch, blocks, seed = case
    note(f"{value}\n{s} {s.weights.tolist()}\nshape {shape} pitch {pitch} blocks {blocks}")
    program = lowered(s, shape, value, profile=device("h200", blocks), pitch=pitch)
    u = random_field(shape, s.dtype, seed)
    first = emulate(program, u, pitch=pitch)
    assert not faults(program, s, u, first)
    second = emulate(program, u, pitch=pitch, seed=seed + 1)
    assert not second.errors and np.array_equal(first.out, second.out), "another order of warps, other numbers"
    return first.out
