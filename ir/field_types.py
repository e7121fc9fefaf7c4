"""Whether an op's fields hold what their annotations say: the parser and the verifier refuse what does not.

Text can be edited into any value, and rules and passes take the declared types for granted: how many numbers stand in
``tuple[int, int]`` is checked here, how many in ``tuple[int, ...]`` belong together by each op's own rules.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from .node import Op, fields
from .text import ATTRIBUTES

Test = Callable[[Any], bool]


@cache
def _test(hint: Any) -> Test:
    """Whether a value is of an annotation's type; an int is a float, a truth value neither."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        any_of = [_test(a) for a in args]
        return lambda v: any(test(v) for test in any_of)
    if origin is tuple and args[1:] == (...,):
        each = _test(args[0])
        return lambda v: isinstance(v, tuple) and all(map(each, v))
    if origin is tuple:
        parts = [_test(a) for a in args]
        return lambda v: (
            isinstance(v, tuple) and len(v) == len(parts) and all(t(x) for t, x in zip(parts, v, strict=True))
        )
    if hint is int or hint is float:
        kinds = (int,) if hint is int else (int, float)
        return lambda v: isinstance(v, kinds) and not isinstance(v, bool)
    if hint in ATTRIBUTES.values():
        inner = [(name, _test(of)) for name, of in get_type_hints(hint).items()]
        return lambda v: isinstance(v, hint) and all(test(getattr(v, name)) for name, test in inner)
    return lambda v: isinstance(v, hint)


_TESTS: dict[type[Op], tuple[tuple[str, str, str, Test], ...]] = {}


def _tests(cls: type[Op]) -> tuple[tuple[str, str, str, Test], ...]:
    if cls not in _TESTS:
        hints = get_type_hints(cls)
        _TESTS[cls] = tuple((n, kind, str(f.type), _test(hints[n])) for n, kind, f in fields(cls) if kind != "region")
    return _TESTS[cls]


def wrong(cls: type[Op], values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields among ``values`` that hold something else than they declare: name, and what was declared."""
    for name, kind, hint, test in _tests(cls):
        if name in values and not test(values[name]):
            yield name, f"{kind} {name!r} must be {hint}"
