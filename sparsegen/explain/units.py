"""Numbers as people read them."""

from __future__ import annotations


def seconds(t: float) -> str:
    """A time with a unit that suits it, three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if t >= scale:
            return f"{t / scale:.3g} {unit}"
    return f"{t / 1e-9:.3g} ns"


def nbytes(n: int) -> str:
    """A size with a unit that suits it."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n >= 1 << shift:
            return f"{n / (1 << shift):.3g} {unit}"
    return f"{n} bytes"


def size(shape: tuple[int, ...]) -> str:
    """``(512, 256)`` as ``512x256``."""
    return "x".join(map(str, shape))


def plural(n: int, what: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{n} {what}{'s' * (n != 1)}"
