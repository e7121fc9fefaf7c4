"""Passes: frozen dataclasses, one a file, each a function from module to module.

Importing the package registers them all, so that a pipeline's text can name any of them.
"""

from . import (
    barriers,
    dce,
    direct,
    fuse_time,
    lowrank,
    patches,
    pipeline,
    pointwise,
    rim,
    simplify,
    stencil2row,
    stream,
    tiled,
    to_warp,
    toeplitz,
)
from .manager import PASSES, Manager, Pass, parse_pipeline, print_pipeline, register

__all__ = [
    "PASSES",
    "Manager",
    "Pass",
    "barriers",
    "dce",
    "direct",
    "fuse_time",
    "lowrank",
    "parse_pipeline",
    "patches",
    "pipeline",
    "pointwise",
    "print_pipeline",
    "register",
    "rim",
    "simplify",
    "stencil2row",
    "stream",
    "tiled",
    "to_warp",
    "toeplitz",
]
