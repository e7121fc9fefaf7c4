"""What a formula needs besides + - * / // **: the same formula is worked out in numbers, in arrays, or as text."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np


class Arithmetic(NamedTuple):
    """The largest and the smallest of any number of values, and the next whole number above one."""

    max: Callable[..., Any]
    min: Callable[..., Any]
    ceil: Callable[[Any], Any]


#: Of ints and floats.
NUMBERS: Final = Arithmetic(max, min, math.ceil)
#: Of NumPy arrays, element by element, and of numbers among them.
ARRAYS: Final = Arithmetic(lambda *x: reduce(np.maximum, x), lambda *x: reduce(np.minimum, x), np.ceil)


def symbols() -> Arithmetic:
    """That of sympy's expressions, which is left unevaluated: sympy would try for seconds to compare the arguments."""
    import sympy

    def lazy(function: Any) -> Callable[..., Any]:
        return lambda *x: function(*map(sympy.sympify, x), evaluate=False)

    return Arithmetic(lazy(sympy.Max), lazy(sympy.Min), lazy(sympy.ceiling))
