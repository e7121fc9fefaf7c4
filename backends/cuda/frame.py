"""What stands around the bodies: signatures, shared memory, built-ins, helpers, and the translation unit's frame."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparsegen._version import __version__
from sparsegen.ir import node
from sparsegen.ir import warp as w
from sparsegen.ir.errors import IRError
from sparsegen.ir.expr import Value, values
from sparsegen.ir.module import Module
from sparsegen.ir.symbols import symbol
from sparsegen.ir.types import Buffer

from . import ptx_ops as ptx
from .arch import check_products, needed_arch
from .names import comment
from .printer import Printer
from .ptx_helper import Helper

if TYPE_CHECKING:
    import jinja2

_BUILTIN: Final = {"tid": "threadIdx.x", "lane": "threadIdx.x & 31", "warp": "threadIdx.x >> 5",
                   "bx": "blockIdx.x", "by": "blockIdx.y", "bz": "blockIdx.z",
                   "rank": "blockIdx.x % {cluster}"}  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """A printed kernel and what it needs around it."""

    text: str
    helpers: tuple[Helper, ...]
    templates: frozenset[str]
    includes: frozenset[str]


def print_kernel(func: w.Func, printer: type[Printer] = Printer, align: int = 0) -> Kernel:
    """Prints one function, with the user's lines in comments; ``align``: bytes, of the shared memory of a unit."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", func.symbol):
        raise IRError(f"{func.symbol!r} is no C identifier", loc=func.loc, hint="give the kernel a plain name")
    if symbol(func.symbol) != func.symbol:
        raise IRError(f"C++ or CUDA has the name {func.symbol!r} already", loc=func.loc,
                      hint=f"call the kernel {symbol(func.symbol)}")  # fmt: skip
    p = printer(func)
    params = ",\n    ".join([*(_param(p, x) for x in func.params), *_maps(p)])
    clusters = f"__cluster_dims__({func.cluster}, 1, 1) " if func.cluster > 1 else ""
    head = (
        f'extern "C" __global__ void {clusters}__launch_bounds__({func.threads}, {func.min_blocks})\n'
        f"{func.symbol}({params})\n{{"
    )
    _shared(p, max(align, alignment(func)))
    _builtins(p)
    p.block(func.body)
    text = "\n".join([head, *p.lines, "}"])
    return Kernel(text, tuple(p.helpers.values()), frozenset(p.templates), frozenset(p.includes))


def param_type(p: Buffer, ctype: str) -> str:
    """The type of a parameter that is a table passed by value."""
    return f"Param<{ctype}, {p.size}>"


def _param(p: Printer, x: Buffer | Value) -> str:
    if isinstance(x, Value):
        return f"const {p.ctype(x.dtype)} {p.names.declare('%' + x.name)}"
    name, ctype = p.names.declare("@" + x.name), p.ctype(x.dtype)
    if x.space == "param":
        p.templates.add(ptx.PARAM)
        return f"const __grid_constant__ {param_type(x, ctype)} {name}"
    if x.name in p.written & p.read:  # threads may talk through it: nvcc must not keep its cells in registers
        return f"{ctype}* {name}"
    return f"{'' if x.name in p.written else 'const '}{ctype}* __restrict__ {name}"


def _maps(p: Printer) -> list[str]:
    """The parameters behind the function's own: its tensor maps."""
    if p.maps:
        p.templates.add(ptx.TENSOR_MAP)
    return [f"const __grid_constant__ TensorMap {p.names.declare(f'@{name}')}" for name in p.maps.values()]


def alignment(func: w.Func) -> int:
    """Bytes at which a kernel's shared memory must begin."""
    return max(128, *(b.align for b in func.shared)) if func.shared else 128


def _shared(p: Printer, align: int) -> None:
    if not p.func.shared:
        return
    offsets, _ = p.func.shared_offsets()
    p.line(f"extern __shared__ __align__({align}) unsigned char smem[];")
    for b in p.func.shared:
        t, name = p.ctype(b.dtype), p.names.declare("@" + b.name)
        p.line(f"{t}* const {name} = reinterpret_cast<{t}*>(smem + {offsets[b.name]});")


def _builtins(p: Printer) -> None:
    ops = tuple(node.walk(p.func.body))
    reads = {v.name for op in ops for e in node.operands(op) for v in values(e)}
    given = {v.name for op in ops for v in (*node.results(op), *node.of_kind(op, "bind"))}
    given |= {x.name for x in p.func.params if isinstance(x, Value)}
    for name, text in _BUILTIN.items():
        if name in reads - given:
            p.line(f"const int {p.names.declare('%' + name)} = {text.format(cluster=p.func.cluster)};")


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False)  # fmt: skip


def fill(template: str, **what: Any) -> str:
    """A template of this back end with its blanks filled in; a blank without a value is an error."""
    return _environment().get_template(template).render(**what)


def functions(module: Module) -> tuple[w.Func, ...]:
    """The module's functions, all of the warp level."""
    funcs = tuple(f for f in module.funcs if isinstance(f, w.Func))
    if len(funcs) != len(module.funcs):
        raise IRError(
            f"module {module.name!r} is not at the warp level", hint="lower it first: only warp functions print as CUDA"
        )
    return funcs


def translation_unit(module: Module, *, title: str, notes: Iterable[str] = (), arch: str | None = None) -> str:
    """The CUDA C++ source of a module: the same text for the same arguments, everywhere.

    ``title`` and ``notes`` (the schedule's line, say) go into the header; ``arch`` into its nvcc command, and IRError
    says what it has no mma for.
    """
    funcs = functions(module)
    if arch is not None:
        check_products(funcs, arch)
    align = max(
        map(alignment, funcs), default=0
    )  # nvcc warns where kernels of a unit declare the same memory otherwise
    kernels = [print_kernel(f, align=align) for f in funcs]
    return fill(
        "unit.cu.j2",
        title=comment(title),
        notes=[comment(line) for note in notes for line in note.split("\n")],
        version=__version__,
        arch=(arch or needed_arch(funcs)).removeprefix("sm_"),
        includes=sorted({i for k in kernels for i in k.includes}),
        templates=sorted({t for k in kernels for t in k.templates}),
        helpers=[h.text for _, h in sorted({h.name: h for k in kernels for h in k.helpers}.items())],
        kernels=[k.text for k in kernels],
    )
