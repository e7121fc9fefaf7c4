"""Passes: frozen dataclasses, one a file, each a function from module to module.

A pipeline's text names them; :mod:`sparsegen.ir.registry` finds them.
"""

from .manager import PASSES, Manager, Pass, parse_pipeline, pass_names, print_pipeline, register

__all__ = ["PASSES", "Manager", "Pass", "parse_pipeline", "pass_names", "print_pipeline", "register"]
