"""The device functions of cells that blocks, or GPUs, hand to each other, and of what ends a wait for one in vain."""

from __future__ import annotations

from typing import Final

from .ptx_helper import Helper, function


def _tagged(bits: int, c: str, constraint: str, scope: str) -> tuple[Helper, Helper, Helper]:
    """A value and its tag loaded, stored, and loaded under a predicate, as one word of twice their width: only that is
    never seen in halves."""
    name = f"tagged_{2 * bits}{'_sys' if scope == 'sys' else ''}"
    word, pair = f".b{2 * bits}", f'"={constraint}"(d.v[0]), "={constraint}"(d.v[1])'
    load = function(
        f"Regs<{c}, 2>", f"ld_{name}", f"const {c}* cell",
        rf"{{\n\t.reg {word} q;\n\tld.relaxed.{scope}.global{word} q, [%2];\n\tmov{word} {{%0, %1}}, q;\n\t}}",
        outs=pair, ins='"l"(cell)', before=f"Regs<{c}, 2> d;", after="return d;")  # fmt: skip
    where = function(
        f"Regs<{c}, 2>", f"ld_{name}_where", f"const {c}* cell, bool there, {c} other",
        rf"{{\n\t.reg {word} q;\n\t.reg .pred p;\n\tsetp.ne.b32 p, %3, 0;\n\tmov{word} q, {{%4, %5}};\n\t"
        rf"@p ld.relaxed.{scope}.global{word} q, [%2];\n\tmov{word} {{%0, %1}}, q;\n\t}}",
        outs=pair, ins=f'"l"(cell), "r"((int)there), "{constraint}"(({c})0), "{constraint}"(other)',
        before=f"Regs<{c}, 2> d;", after="return d;")  # fmt: skip
    store = function(
        "void", f"st_{name}", f"{c}* cell, {c} value, {c} tag",
        rf"{{\n\t.reg {word} q;\n\tmov{word} q, {{%1, %2}};\n\tst.relaxed.{scope}.global{word} [%0], q;\n\t}}",
        ins=f'"l"(cell), "{constraint}"(value), "{constraint}"(tag)')  # fmt: skip
    return load, store, where


_TAGGED: Final = {
    (bits, scope): _tagged(bits, c, constraint, scope)
    for bits, c, constraint in ((32, "unsigned", "r"), (64, "unsigned long long", "l"))
    for scope in ("gpu", "sys")
}
LD_TAGGED: Final = {key: made[0] for key, made in _TAGGED.items()}
ST_TAGGED: Final = {key: made[1] for key, made in _TAGGED.items()}
LD_TAGGED_WHERE: Final = {key: made[2] for key, made in _TAGGED.items()}
TRAP: Final = function(
    "void", "trap", "bool where", r"{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %0, 0;\n\t@p trap;\n\t}", ins='"r"((int)where)'
)
