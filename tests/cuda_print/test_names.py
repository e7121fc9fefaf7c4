"""Names of users never meet those of C++, CUDA, headers, or the text around them; other text of theirs is no code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sparsegen.backends.cuda.frame import print_kernel, translation_unit
from sparsegen.backends.cuda.names import Names, comment
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError, Loc
from sparsegen.ir.module import Module
from sparsegen.ir.parse import parse_module
from sparsegen.ir.symbols import KEYWORDS, reserved, symbol
from sparsegen.ir.text import print_module
from sparsegen.ir.types import Buffer, f64
from tests.nvcc_kit import needs_nvcc

ROOT = Path(__file__).resolve().parents[2]
#: Made by .ci/macro_table.py from the headers of CUDA 13.0 and glibc 2.36.
MACROS = frozenset((Path(__file__).parent / "macros.txt").read_text().split())
#: What passes and launchers put behind the name of a kernel or module.
ENDS = ("", "_rim", "_stencil2row", "_rim_stencil2row", "_run", "_step", "_workspace_bytes")
#: Paths, titles and notes with what ends a line, a comment, or an encoding.
TEXTS = ("a\nint x;", "a\r#error", "a\\", "a??/", "a\u2028x", "a\x85x", "a\x0bx", "a\0b", "\udc80", "\u202ex", "é", "")


def test_no_macro_is_a_value_or_a_kernel() -> None:
    assert len(MACROS) > 400 and {"M_PI", "NAN", "stderr", "linux"} <= MACROS
    names = Names()
    taken = MACROS | KEYWORDS
    made = [names.declare(f"%{name}") for name in sorted(taken)]
    assert len(set(made)) == len(taken) and not set(made) & taken
    assert not {symbol(name) + end for name in taken for end in ENDS} & taken


def test_what_is_made_of_any_name_prints() -> None:
    """The passes may put an end to a symbol and it stays one that a kernel may have."""
    for name in (
        *MACROS,
        *KEYWORDS,
        "cuda",
        "pthread",
        "M",
        "HUGE_VAL",
        "CU",
        "heat",
        "mma",
        "fence",
        "f32add",
        "x",
        "hsqrt",
        "M_",
    ):
        for end in ENDS:
            assert symbol(symbol(name) + end) == symbol(name) + end


@needs_nvcc
def test_the_macros_that_nvcc_has_here_are_known() -> None:
    done = subprocess.run([sys.executable, ROOT / ".ci" / "macro_table.py", "--check"], text=True, capture_output=True)
    assert done.returncode == 0, f"sparsegen.ir.symbols lets a user have:\n{done.stdout}{done.stderr}"


def test_what_printed_code_calls_is_no_value(programs: ModuleType) -> None:
    """Functions, types and templates in the text of every op and helper, but for what the text itself declares."""
    text = translation_unit(programs.every_op(), title="")
    own = {f.symbol for f in programs.every_op().funcs}
    text = re.sub(r'"[^"\n]*"|//[^\n]*', "", text)
    used = set(re.findall(r"\b([A-Za-z]\w*)(?:<[^;{}()]*>)?\(", text)) | set(
        re.findall(r"\b([A-Za-z]\w*)(?:[*>]|<[^;()]*> \w)", text)
    )
    assert {"fma", "min", "hsqrt", "cp_async_16", "make_uint4", "atomicAdd", "Regs"} <= used, sorted(used)
    values = {"".join(pair) for pair in re.findall(r"\b([A-Za-z]\w*) (?:=|<|>|\*|\+)|\bint (\w+)[,>]", text)}
    assert {name for name in used - own - values if len(name) > 1 and not reserved(name)} == set()


@pytest.mark.parametrize("name", ["signed", "double", "main", "NAN", "cudaMalloc", "mma_sync", "M_PI"])
def test_a_kernel_of_such_a_name_is_refused(name: str) -> None:
    with pytest.raises(IRError) as caught:
        print_kernel(w.Func(name, (), (), (1, 1, 1), 32, ()))
    assert repr(name) in str(caught.value) and f"{name}_kernel" in str(caught.value.hint)


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_users_stays_a_comment(text: str) -> None:
    u = Buffer("u", f64, 32, "global")
    op = w.Barrier(loc=Loc(f"folder/{text}", 3))
    module = Module("m", (w.Func("k", (u,), (), (1, 1, 1), 32, (op,)),))
    plain = translation_unit(module, title="", notes=[""]).encode().split(b"\n")
    made = translation_unit(module, title=text, notes=[text]).encode().split(b"\n")
    extra = text.count("\n")  # a note may have several lines
    assert len(made) == len(plain) + extra and all(line.startswith(b"//") for line in made[: 2 + extra])
    assert sum(line.strip().startswith(b"//") for line in made) == 5 + extra
    assert comment(text).isprintable() and not comment(text).endswith(("\\", "??/"))
    if text:
        assert parse_module(print_module(module, locs=True)).funcs[0].body[0].loc == op.loc  # type: ignore[attr-defined]
    assert print_module(module, locs=True).encode()
