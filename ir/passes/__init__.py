"""Passes: frozen dataclasses, one a file, each a function from module to module."""

from . import dce, simplify
from .manager import PASSES, Manager, Pass, parse_pipeline, print_pipeline, register

__all__ = ["PASSES", "Manager", "Pass", "dce", "parse_pipeline", "print_pipeline", "register", "simplify"]
