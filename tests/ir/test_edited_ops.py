"""Ops with one number that is 0 or negative: a rule refuses them with a message, or they are fine; no traceback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from sparsegen.ir.errors import SparsegenError
from sparsegen.ir.module import Module
from sparsegen.ir.node import Op, fields, walk
from sparsegen.ir.verify import verify
from tests.freeze.problems import programs
from tests.ir.test_text_of_families import few

#: Copies of an op that differ in one field and give it one value: enough, since ops of a class have the same rules.
COPIES = 3
#: Numbers of a tuple that are replaced in turn.
PARTS = 8


def swapped(op: Op, old: Op, new: Op) -> Op:
    """The op with another in place of one that it holds."""
    if op is old:
        return new
    inner = {name: getattr(op, name) for name, kind, _ in fields(op) if kind == "region"}
    return replace(op, **{name: tuple(swapped(o, old, new) for o in held) for name, held in inner.items()})


def with_number(value: object, new: int) -> Iterator[object]:
    """The value with each of its numbers, one at a time, replaced."""
    if type(value) is int:
        yield new
    elif isinstance(value, tuple):
        for i, part in enumerate(value[:PARTS]):
            for changed in with_number(part, new):
                yield (*value[:i], changed, *value[i + 1 :])


def wrong(module: Module, seen: Counter[tuple[str, str, int]]) -> Iterator[tuple[str, Module]]:
    """Copies of a module with one number of one op's attributes 0 or negative, and what was changed."""
    for at, func in enumerate(module.funcs):
        for op in walk(func):
            for name, value in ((name, getattr(op, name)) for name, kind, _ in fields(op) if kind == "attr"):
                for new in (0, -1):
                    if seen[op.name, name, new] >= COPIES:
                        continue
                    for changed in with_number(value, new):
                        seen[op.name, name, new] += 1
                        made = swapped(func, op, replace(op, **{name: changed}))
                        yield (
                            f"{op.name} {name}={changed}",
                            replace(module, funcs=(*module.funcs[:at], made, *module.funcs[at + 1 :])),
                        )


def test_a_number_of_an_op_is_zero_or_negative() -> None:
    seen = Counter[tuple[str, str, int]]()
    refused, failed = 0, dict[str, str]()
    for case in few():
        program = next(programs(case))
        for what, module in (*wrong(program.op, seen), *wrong(program.tile, seen)):
            try:
                verify(module)
            except SparsegenError as error:
                refused += 1
                assert error.message, what
            except Exception as error:
                failed[what] = repr(error)
    assert not failed, "\n".join(f"{what}: {error}" for what, error in failed.items())
    assert refused > 500
