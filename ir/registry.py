"""Finds what registers itself: ops, attributes, rules and passes count once their module is imported, so all are."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages


@cache
def load_all() -> None:
    """Imports every module under :mod:`sparsegen.ir`, once; a file that is put there needs no mention elsewhere.

    Whoever looks something up by its name calls this first.  Compiling looks nothing up by name and does not pay.
    """
    root = __name__.rpartition(".")[0]
    for found in walk_packages(import_module(root).__path__, f"{root}."):
        import_module(found.name)
