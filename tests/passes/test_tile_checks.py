"""Each tile op has a rule: a family's program is right as it is lowered, and refused when one field is another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparsegen.ir import tile_walk as tw
from sparsegen.ir.checks import CHECKS
from sparsegen.ir.errors import IRError
from sparsegen.ir.module import Module
from sparsegen.ir.node import OPS, Op, fields, rewrite, walk
from sparsegen.ir.registry import load_all
from sparsegen.ir.spread import Products
from sparsegen.ir.types import f16
from sparsegen.ir.verify import verify
from tests.passes.programs_of_families import PROGRAMS, tile_level
from tests.passes.wrong_fields import WRONG


def changed(module: Module, kind: type[Op], fields: dict[str, Any]) -> Module:
    """The module with fields of every op of a kind replaced."""

    def rule(op: Op) -> Op:
        return replace(op, **fields) if type(op) is kind else op

    return replace(module, funcs=rewrite(module.funcs, rule))


@pytest.mark.parametrize("family", PROGRAMS)
def test_programs_are_right(family: str) -> None:
    verify(tile_level(family))


@pytest.mark.parametrize(("family", "kind", "fields", "words"), WRONG)
def test_a_wrong_field_is_refused(family: str, kind: type[Op], fields: dict[str, Any], words: str) -> None:
    module = tile_level(family)
    assert any(type(op) is kind for op in walk(module.funcs))
    with pytest.raises(IRError, match=words):
        verify(changed(module, kind, fields))


def test_a_ring_of_another_type_is_refused() -> None:
    """The ring's own type is part of its declaration, so all that use it change with it."""
    module = tile_level("stream")
    (fetch,) = (op for op in walk(module.funcs) if isinstance(op, tw.Fetch))
    other = replace(fetch.ring, dtype=f16)

    def rule(op: Op) -> Op:
        changed: dict[str, Any] = {n: other for n in ("buf", "ring") if getattr(op, n, None) == fetch.ring}
        return replace(op, **changed)

    with pytest.raises(IRError, match="@u is f64, @ring f16"):
        verify(replace(module, funcs=rewrite(module.funcs, rule)))


def test_each_op_has_a_rule_and_a_wrong_program() -> None:
    load_all()
    tried = {kind for _, kind, _, _ in WRONG}
    for name, op in OPS.items():
        if name.startswith("tile.") and all(f.kw_only for _, _, f in fields(op)):
            declared = any(f.metadata.get("one_of") for _, _, f in fields(op))
            assert CHECKS.get(op) or declared, f"{name} has no rule"
            assert op in tried, f"no wrong {name} is tried"


@pytest.mark.parametrize("fields", [{"base": "f64.m9n9k9"}, {"warps": 0}, {"rows": 0}])
def test_a_spread_of_no_mma_is_refused(fields: dict[str, Any]) -> None:
    spread = replace(Products("f64.m8n8k4", 8, 8, 9, 4, 2), **fields)
    for attempt in (lambda: spread.size, lambda: spread.registers):
        with pytest.raises(IRError, match=r"is unknown|of accumulators"):
            attempt()
