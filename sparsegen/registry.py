"""Where families of schedules are found: those of :mod:`sparsegen.families`, and those that a user registers.

A module of that package registers its family when it is imported; all of a kind are imported when one is first looked
for.  Those of products are apart: the cost of a stencil needs neither the compiler's levels nor the back ends, as they
do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from sparsegen.schedule import Vocabulary

_FOUND: dict[str, dict[str, Vocabulary]] = {}
#: The order in which the families of an operation are listed and tried; others follow.
_ORDER = ("direct", "tiled", "stencil2row", "stream", "patches", "column", "toeplitz", "lowrank", "bitmap", "dense")
#: Operations whose families have a package of their own.
_PACKAGES = {op: f"sparsegen.families.{op}" for op in ("update", "spmm", "sddmm", "attention")}
F = TypeVar("F", bound="Vocabulary")


def register(family: F) -> F:
    """The family, which from now on is a candidate for all problems of its operation (and format)."""
    _FOUND.setdefault(family.op, {})[family.name] = family
    of_op = _FOUND[family.op]
    known = [name for name in _ORDER if name in of_op]
    _FOUND[family.op] = {name: of_op[name] for name in (*known, *(n for n in of_op if n not in _ORDER))}
    return family


def families(op: str) -> Mapping[str, Vocabulary]:
    """The families of an operation by name, in the order in which they are tried."""
    _load(_PACKAGES.get(op, "sparsegen.families"))
    return _FOUND[op]


def operations() -> tuple[str, ...]:
    """All operations that have families."""
    for package in ("sparsegen.families", *_PACKAGES.values()):
        _load(package)
    return tuple(sorted(_FOUND))


@cache
def _load(package: str) -> None:
    for module in iter_modules(import_module(package).__path__):
        if not module.ispkg:
            import_module(f"{package}.{module.name}")
