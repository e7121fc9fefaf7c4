"""Launches that overlap (Hopper): a kernel that begins while the one before it on the stream still runs.

A function with a ``launch_wait`` is launched so, if the way to launch can.  Before its wait a thread may read only what
no launch writes (``verify_launch``).
"""

from __future__ import annotations

from .node import Op, define


@define("warp.launch_next")
class LaunchNext(Op):
    """This block has no objection to the next launch's start; that begins once all blocks say so or have ended."""


@define("warp.launch_wait")
class LaunchWait(Op):
    """Waits until the launches before have ended, and sees all that they have written."""
