"""The tile op of tasks: what warps do one after another, dealt out beforehand, the longest first.

No warp waits for another: a task is a run of steps of one row, and rows of unequal length are dealt to warps so that
all have about as much to do.  Only kernels on tensor cores use it: ``csr`` deals segments of rows to teams of lanes.
"""

from __future__ import annotations

from .checks import Context, check
from .expr import Expr, Value
from .node import Op, attr, bind, buffer, define, operand, region
from .types import Buffer, s32

#: Words of a task's record: its row, its first step, the one after its last, and a word of the family's own.
RECORD = 4


@define("tile.each_task", kw_only=True)
class EachTask(Op):
    """Each warp runs the body for each of its tasks, ``length`` records of four words in list number ``list``.

    Task i of warp w of list l is record (l * length + i) * warps + w of ``tasks``: the task of row ``row`` has the
    steps from ``begin`` to the one before ``end``, and ``word`` is for its family.  ``rows`` and ``steps`` bound what
    records say; one of row ``rows`` only fills up.

    With ``after`` records are read a task ahead: it is the first step of the task that comes next, ``after_row`` its
    row (which may be ``rows``), so that a body may load for it what ``ahead`` loads for the first one, whose step is
    ``begin`` there and whose row is ``row``.
    """

    tasks: Buffer = buffer()
    row: Value = bind()
    begin: Value = bind()
    end: Value = bind()
    word: Value = bind()
    after: Value | None = bind(default=None)
    after_row: Value | None = bind(default=None)
    list: Expr = operand()
    length: int = attr()
    rows: int = attr()
    steps: int = attr()
    ahead: tuple[Op, ...] = region(default=())
    body: tuple[Op, ...] = region()


@check(EachTask)
def _each_task(op: EachTask, ctx: Context) -> None:
    ctx.need(op.tasks.dtype is s32, f"records are s32, not {op.tasks.dtype}")
    ctx.need(op.after is not None or not op.ahead, "what is loaded for the first task, others load for the next one")
    warps = ctx.warps()
    each = op.length * warps * RECORD
    ctx.need(op.length >= 1 and op.tasks.size % each == 0,
             f"@{op.tasks.name} has {op.tasks.size} words, no lists of {op.length} tasks of {warps} warps")  # fmt: skip
