"""Operators that Python has and a formula has not: stand-ins refuse them at the user's line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, NoReturn

from sparsegen.callsite import user_loc
from sparsegen.ir.errors import StencilError


def fault(what: str, hint: str) -> StencilError:
    """The error for something that the user's function does, at its line."""
    return StencilError(what, loc=user_loc(), hint=hint)


class Refused(ABC):
    """The operators that make no sense on a stand-in: each raises at the user's line."""

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # NumPy scalars and arrays leave * and + to us

    @abstractmethod
    def refuse(self, what: str) -> NoReturn:
        """StencilError that says what the stand-in was used for; each kind has its own."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        self.refuse("used as a truth value (if, while, and, or)")


def refusing(what: str) -> Callable[..., Any]:
    """An operator that refuses with ``what`` was done to the stand-in."""

    def operation(self: Refused, *_: object) -> NoReturn:
        self.refuse(what)

    return operation


_NEVER: Final = {
    "round": "rounded",
    "floordiv": "divided with //",
    "rfloordiv": "divided by with //",
    "mod": "used with %",
    "rmod": "used with %",
    "matmul": "used with @",
    "rmatmul": "used with @",
}
LOGIC: Final = dict.fromkeys(("and", "rand", "or", "ror", "xor", "rxor", "invert"), "used with & | ^ ~")
COMPARED: Final = {
    "eq": "compared with ==",
    "ne": "compared with !=",
    "lt": "compared with <",
    "le": "compared with <=",
    "gt": "compared with >",
    "ge": "compared with >=",
}
ARITHMETIC: Final = (
    "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg", "pos", "pow", "rpow", "abs",
)  # fmt: skip

for _name, _what in _NEVER.items():
    setattr(Refused, f"__{_name}__", refusing(_what))
