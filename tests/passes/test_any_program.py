"""Every pass, as a user may name it, on programs of every family and number of axes: a program, or a clean refusal."""

from __future__ import annotations

import pytest

from sparsegen.ir import passes
from sparsegen.ir.errors import IRError, SparsegenError
from sparsegen.ir.parse import parse_module
from sparsegen.ir.passes.manager import level_of
from tests.fuzz import texts
from tests.fuzz.finding import Draw


def test_every_pass_on_every_family() -> None:
    """The op level, from which the families part, and the tile level, which no kernel's pass knows."""
    programs = [module for text in texts.texts() if level_of(module := parse_module(text)) != "warp"]
    refused = set()
    for name in passes.pass_names():
        for module in programs:
            try:
                passes.Manager(passes.parse_pipeline(name)).run(module)
            except SparsegenError as error:
                assert error.hint and not error.message.startswith("pass "), f"{name} on {module.name}: {error}"
                refused.add((name, level_of(module)))
    products = ("csr", "csr_strip", "bitmap", "nm_lanes", "nm_gather", "nm_decode", "nm_outer", "nm_24", "nm_strips",
                "nm_windows")  # fmt: skip
    assert {(name, "op") for name in ("column", "tiled", *products)} <= refused


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("column", "takes fields of 3 axes, not of 2"),
        ("tiled{rows=0}", "rows=0 must be at least 1"),
        ("tiled{blocks=-1}", "blocks=-1 must be at least 0"),
        ("lowrank{mma=f16.m16n8k16}", "must be one of its choices"),
        ("stencil2row{mma=none}", "must be one of its choices"),
        ("fuse-time{rim=0}", "must be a str"),
        ("fuse-time{steps=100000}", "weights"),
    ],
)
def test_what_options_may_be(line: str, says: str) -> None:
    text = next(t for t in texts.texts() if "op.stencil" in t and len(parse_module(t).funcs[0].shape) == 2)  # type: ignore[attr-defined]
    with pytest.raises(SparsegenError) as caught:
        passes.Manager(passes.parse_pipeline(line)).run(parse_module(text))
    assert says in str(caught.value) and caught.value.hint


def test_some_random_lines() -> None:
    """What ``python -m tests.fuzz --only passes`` does for as long as one likes."""
    for number in range(100):
        texts.passes_on_programs(Draw(number))


def test_a_product_in_another_format_is_refused() -> None:
    csr = next(m for t in texts.texts() if 'format="csr"' in t and level_of(m := parse_module(t)) == "op")
    with pytest.raises(IRError, match="takes matrices of bitmap, not of csr"):
        passes.Manager(passes.parse_pipeline("bitmap")).run(csr)
