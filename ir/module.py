"""A compiled program: kernels, constant tables, and the launches that make one pass over the data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .node import Op


@dataclass(frozen=True)
class Launch:
    """One kernel launch: which function, and for each of its parameters the name of what is bound to it.

    Names are the roles of a pass (``in``, ``out``) or keys of :attr:`Module.constants`.
    """

    symbol: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class Module:
    """Functions of one level (op, tile or warp), the tables they read, and the launches of one pass.

    ``constants`` maps a parameter's role to a NumPy array; they are data that a pass has worked out (weights,
    fragments, lookup tables), uploaded once.  They take no part in equality: the functions say all that the text says.
    """

    name: str
    funcs: tuple[Op, ...]
    launches: tuple[Launch, ...] = ()
    constants: dict[str, Any] = field(default_factory=dict, compare=False)
