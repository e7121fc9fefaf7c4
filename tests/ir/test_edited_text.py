"""Programs that somebody has edited: refused with what, where and a remedy, or lowered; never a bare traceback."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from sparsegen.ir.errors import IRError, SparsegenError
from sparsegen.ir.parse import parse_module
from sparsegen.ir.passes import PASSES, Manager, parse_pipeline
from sparsegen.ir.text import print_module
from sparsegen.ir.verify import verify
from tests.freeze.problems import programs
from tests.ir.test_text_of_families import few

#: Edits of each program at its op and at its tile level.
OP_EDITS, TILE_EDITS = 12, 6
STENCIL = """\
module "s"
op.stencil "s", [40, 64], f64, [[[-1, 0], 0.5], [[0, 0], 0.5]], [1, 1], SIDES, [[0, 40], [0, 64]], [64, 64]
""".replace("SIDES", '[[["frozen", 0.0], ["frozen", 0.0]], [["frozen", 0.0], ["frozen", 0.0]]]')
UPDATE = """\
module "u"
op.update "u", [20, 30], f64, [["u", 1]], ["c"], [["read", "u", 0, [0, 1]], ["read", "c", 0, [0, 0]], ["mul", 0, 1]], \
[2], [1, 1], [SIDES], SIDES, [30, 30, 30]
""".replace("SIDES", '[[["frozen", 0.0], ["frozen", 0.0]], [["frozen", 0.0], ["frozen", 0.0]]]')
SPMM = """\
module "p"
op.spmm "p", 64, 128, 8, f16, 100
"""
WRONG = [
    (STENCIL, "[40, 64]", "[40, 64, 8]", "radius [1, 1] is of 2 axes"),
    (STENCIL, "[40, 64]", "[64]", "radius [1, 1] is of 2 axes"),
    (STENCIL, "[40, 64]", "[]", "a field of 0 axes"),
    (STENCIL, "[40, 64]", "[40, 0]", "a field of (40, 0) cells"),
    (STENCIL, "[40, 64]", '[40, "x"]', "attr 'shape' must be tuple[int, ...]"),
    (STENCIL, "[1, 1]", "[1, 1, 1]", "radius [1, 1, 1] is of 3 axes"),
    (STENCIL, "[1, 1]", "[0, 1]", "tap [-1, 0] is outside the radius"),
    (STENCIL, "[1, 1]", "[-1, 1]", "radius [-1, 1] is negative"),
    (STENCIL, "[[-1, 0], 0.5]", "[[-1], 0.5]", "tap [-1] is of 1 axes"),
    (STENCIL, "[[-1, 0], 0.5]", "[[-1, 0]]", "attr 'taps' must be tuple[Tap, ...]"),
    (STENCIL, "[[-1, 0], 0.5]", "[[0, 0], 0.5]", "two taps have one offset"),
    (STENCIL, "[[0, 40], [0, 64]]", "[[0, 40]]", "is of 1 axes"),
    (STENCIL, "[[0, 40], [0, 64]]", "[[0, 41], [0, 64]]", "is not within the field"),
    (STENCIL, "[[0, 40], [0, 64]]", "[[0, 40, 1], [0, 64]]", "attr 'box' must be Box"),
    (STENCIL, "[64, 64]\n", "[64]\n", "attr 'pitch' must be tuple[int, int]"),
    (STENCIL, "[64, 64]\n", "[64, 60]\n", "rows of 64 cells overlap at pitch 60"),
    (STENCIL, "[64, 64]\n", "[64, 64] steps=0\n", "0 time steps"),
    (STENCIL, "f64", "s32", "a field of s32"),
    (STENCIL, '["frozen", 0.0]', '["froze", 0.0]', "'froze' is unknown"),
    (STENCIL, '[["frozen", 0.0], ["frozen', '[["periodic", 0.0], ["frozen', "periodic here and frozen there"),
    (UPDATE, "[20, 30]", "[20, 30, 4]", "must have 3 axes"),
    (UPDATE, '[["u", 1]]', "[]", "an update without a field"),
    (UPDATE, '[["u", 1]]', '[["u"]]', "attr 'fields' must be"),
    (UPDATE, '["read", "u", 0, [0, 1]]', "[]", "node 0 of the formula"),
    (UPDATE, '["read", "u", 0, [0, 1]]', '["read", "u", 0, [0]]', "1 offsets on 2 axes"),
    (UPDATE, '["read", "u", 0, [0, 1]]', '["read", "u", "a", [0, 1]]', "a read has a parameter, a level and an offset"),
    (UPDATE, "[1, 1]", "[1]", "must have 2 axes"),
    (UPDATE, "[30, 30, 30]", "[30, 30]", "2 pitches for 3 arrays"),
    (SPMM, "64,", "0,", "a product of 0 x 128"),
    (SPMM, "64,", "[64],", "attr 'm' must be int"),
    (SPMM, "f16", "s16", "holds floats"),
    (SPMM, "f16", "s8", "x is None and y None beside s8"),
    (SPMM, "f16, 100", "e4m3, 100 x_type=f16 y_type=f32", "x is f16 and y f32 beside e4m3"),
]


@pytest.mark.parametrize(("text", "old", "new", "said"), WRONG, ids=[f"{o}->{n}".strip() for _, o, n, _ in WRONG])
def test_wrong_ranks_and_values_at_the_op_level(text: str, old: str, new: str, said: str) -> None:
    verify(parse_module(text))
    assert old in text
    with pytest.raises(IRError) as e:
        verify(parse_module(text.replace(old, new, 1)))
    assert said in e.value.message and e.value.loc is not None and e.value.loc.line == 2


def edits(text: str, draw: random.Random, count: int) -> Iterator[str]:
    """Copies of a program with one thing changed: a number, an item more or less, a list that is empty."""
    numbers = list(re.finditer(r"(?<![\w.%@])-?\d+(\.\d+)?\b(?![.<])", text))
    for _ in range(count):
        at = draw.choice(numbers)
        new = draw.choice(
            ("0", "-1", "1", "3", "7", "16", "0.5", '"a"', "true", "none", f"{at[0]}, {at[0]}", "", "[]", f"[{at[0]}]")
        )
        yield text[: at.start()] + new + text[at.end() :]


def families(op: str) -> list[str]:
    """The passes that make a kernel of such an op."""
    products = ("bitmap", "csr", "csr_strip", "nm_lanes", "nm_gather", "nm_decode", "nm_outer", "nm_24", "nm_strips",
                "nm_windows", "hybrid", "blocked_ell,hybrid,csr", "smbd", "decompose,vector_strip",
                "decompose,vector_gather", "decompose,vector_block")  # fmt: skip
    known = {
        "op.update": ("pointwise",), "op.spmm": products, "op.sddmm": ("sddmm", "sddmm_gather"),
        "op.attention": ("attention", "unfuse,sddmm_gather,softmax,decompose,vector_block"),
        "op.stencil": ("direct", "tiled", "stream", "patches", "column", "toeplitz", "lowrank", "stencil2row"),
    }  # fmt: skip
    return [names for names in known[op] if set(names.split(",")) <= set(PASSES)]


def test_random_edits_of_op_and_tile_level() -> None:
    draw, refused, lowered = random.Random(11), 0, 0
    for case in few()[::3]:
        program = next(programs(case))
        op, tile = print_module(program.op), print_module(program.tile, tables=False)
        names = families(program.op.funcs[0].name)
        for text in (*edits(op, draw, OP_EDITS), *edits(tile, draw, TILE_EDITS)):
            kernel = f"{draw.choice(names)},rim,pipeline,barriers," if "\nop." in text else ""
            try:
                Manager(parse_pipeline(f"{kernel}to-warp,simplify,dce"), verify_each=True).run(parse_module(text))
                lowered += 1
            except SparsegenError as error:
                refused += 1
                assert error.message
                if kernel:  # a rule says it, not the exception that a pass ran into
                    assert " fails on module " not in error.message, f"a rule is missing: {error}\n{text}"
    assert refused > 100 and lowered > 30
