"""The device functions of cells that blocks, or GPUs, hand to each other, and of what ends a wait for one in vain."""

from __future__ import annotations

from typing import Final

from .ptx_helper import Helper, function

#: Packs registers into the word ``q``, and unpacks it: of two as wide as half of it, and of four of 32 bits.
_PACK: Final = {2: r"mov.b{bits} q, {{{0}, {1}}};",
                4: r"mov.b64 lo, {{{0}, {1}}};\n\tmov.b64 hi, {{{2}, {3}}};\n\tmov.b128 q, {{lo, hi}};"}  # fmt: skip
_UNPACK: Final = {2: r"mov.b{bits} {{{0}, {1}}}, q;",
                  4: r"mov.b128 {{lo, hi}}, q;\n\tmov.b64 {{{0}, {1}}}, lo;\n\tmov.b64 {{{2}, {3}}}, hi;"}  # fmt: skip


def _tagged(bits: int, count: int, scope: str) -> tuple[Helper, Helper, Helper]:
    """Values and their tag loaded, stored, and loaded under a predicate, as one word: only that is never seen in
    halves."""
    c, constraint = ("unsigned", "r") if bits == 32 else ("unsigned long long", "l")
    wide, each = bits * count, range(count)
    name = f"tagged_{wide if count == 2 else f'{count}x{bits}'}{'_sys' if scope == 'sys' else ''}"
    word = rf".reg .b{wide} q;" + (r"\n\t.reg .b64 lo, hi;" if count == 4 else "")

    def pack(first: int) -> str:
        return _PACK[count].format(*(f"%{first + i}" for i in each), bits=wide)

    unpack = _UNPACK[count].format(*(f"%{i}" for i in each), bits=wide)
    outs, regs = ", ".join(f'"={constraint}"(d.v[{i}])' for i in each), f"Regs<{c}, {count}>"
    load = function(
        regs, f"ld_{name}", f"const {c}* cell",
        rf"{{\n\t{word}\n\tld.relaxed.{scope}.global.b{wide} q, [%{count}];\n\t{unpack}\n\t}}",
        outs=outs, ins='"l"(cell)', before=f"{regs} d;", after="return d;")  # fmt: skip
    where = function(
        regs, f"ld_{name}_where", f"const {c}* cell, bool there, {c} other",
        rf"{{\n\t{word}\n\t.reg .pred p;\n\tsetp.ne.b32 p, %{count + 1}, 0;\n\t{pack(count + 2)}\n\t"
        rf"@p ld.relaxed.{scope}.global.b{wide} q, [%{count}];\n\t{unpack}\n\t}}",
        outs=outs, ins=", ".join(['"l"(cell), "r"((int)there)', *[f'"{constraint}"(({c})0)'] * (count - 1),
                                  f'"{constraint}"(other)']),
        before=f"{regs} d;", after="return d;")  # fmt: skip
    values = [*("value" if count == 2 else f"value{i}" for i in each[:-1]), "tag"]
    store = function(
        "void", f"st_{name}", ", ".join([f"{c}* cell", *(f"{c} {value}" for value in values)]),
        rf"{{\n\t{word}\n\t{pack(1)}\n\tst.relaxed.{scope}.global.b{wide} [%0], q;\n\t}}",
        ins=", ".join(['"l"(cell)', *(f'"{constraint}"({value})' for value in values)]))  # fmt: skip
    return load, store, where


_TAGGED: Final = {
    (bits, count, scope): _tagged(bits, count, scope)
    for bits, count in ((32, 2), (64, 2), (32, 4))
    for scope in ("gpu", "sys")
}
LD_TAGGED: Final = {key: made[0] for key, made in _TAGGED.items()}
ST_TAGGED: Final = {key: made[1] for key, made in _TAGGED.items()}
LD_TAGGED_WHERE: Final = {key: made[2] for key, made in _TAGGED.items()}
TRAP: Final = function(
    "void", "trap", "bool where", r"{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %0, 0;\n\t@p trap;\n\t}", ins='"r"((int)where)'
)
