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


@dataclass(frozen=True, eq=False)
class Module:
    """Functions of one level (op, tile or warp), the tables they read, and the launches of one pass.

    ``constants`` maps a parameter's role to a NumPy array; they are data that a pass has worked out (weights,
    fragments, lookup tables), uploaded once.  Modules are equal if their tables are, bit for bit.
    """

    name: str
    funcs: tuple[Op, ...]
    launches: tuple[Launch, ...] = ()
    constants: dict[str, Any] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Module):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.name, self.funcs, self.launches))

    def _key(self) -> tuple[Any, ...]:
        tables = {name: (a.dtype, a.shape, a.tobytes()) for name, a in self.constants.items()}
        return self.name, self.funcs, self.launches, tables
