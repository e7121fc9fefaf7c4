"""Fills the excerpts of docs/walkthrough.md from the real code; ``--check`` only says whether they are current.

An excerpt stands between ``<!-- show:NAME -->`` and ``<!-- end -->``; NAME is a method of :class:`Walk`.  Everything is
looked up in the program that ``sg.compile`` made, and the lanes' registers are read while the emulator runs it.
"""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import sparsegen as sg  # noqa: E402
from sparsegen import pipelines  # noqa: E402
from sparsegen.backends.emulator import run  # noqa: E402
from sparsegen.cli import stencils  # noqa: E402
from sparsegen.ir import node, tile, warp  # noqa: E402
from sparsegen.ir.expr import Expr, Value  # noqa: E402
from sparsegen.ir.fragments import SHAPES  # noqa: E402
from sparsegen.ir.layout import stencil2row_a  # noqa: E402
from sparsegen.ir.module import Module  # noqa: E402
from sparsegen.ir.passes import print_pipeline  # noqa: E402
from sparsegen.ir.passes.dce import Dce  # noqa: E402
from sparsegen.ir.passes.simplify import Simplify  # noqa: E402
from sparsegen.ir.passes.to_warp import ToWarp  # noqa: E402
from sparsegen.ir.text import print_module  # noqa: E402
from sparsegen.ir.types import Buffer, f64  # noqa: E402
from sparsegen.plan import Bound, constant, launches  # noqa: E402
from sparsegen.problems.stencil import StencilProblem  # noqa: E402

TARGET = ROOT / "docs" / "walkthrough.md"
EXAMPLE = ROOT / "examples" / "heat2d.py"
MARK = re.compile(r"(<!-- show:(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
COMPILE = """\
k = sg.compile(heat2d, shape=(1024, 1024), steps=3, device="h200", backend="emulator",
               schedule="stencil2row mma=f64.m8n8k4 fuse=3 stages=2 lut=off")
y, x = np.mgrid[0:1024, 0:1024]
u = y + x / 10000                    # every number says where it comes from
u1 = k(u)
"""
ROW, COL = 600, 200


# ------------------------------------------------------------------------------------------------ text
def fenced(text: str, language: str = "text") -> str:
    """A code block; lines over 112 characters are wrapped."""
    lines: list[str] = []
    for line in textwrap.dedent(text).rstrip().splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 6)
        lines += textwrap.wrap(line, 112, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [
            ""
        ]
    return "\n".join([f"```{language}", *lines, "```"])


def table(head: list[str], rows: list[list[Any]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows))


def find(lines: list[str], text: str, nth: int = 0) -> int:
    """The line that holds ``text``, the ``nth`` of them."""
    found = [i for i, line in enumerate(lines) if text in line]
    if len(found) <= nth:
        raise LookupError(f"the walkthrough looks for {text!r}, which is not in the program any more")
    return found[nth]


def around(source: str, text: str, nth: int = 0, up: int = 1) -> str:
    """The braced region ``up`` levels around the line that holds ``text``, with its pragma."""
    lines = source.splitlines()

    def indent(i: int) -> int:
        return len(lines[i]) - len(lines[i].lstrip())

    at = find(lines, text, nth)
    for _ in range(up):
        at = next(i for i in range(at - 1, -1, -1) if lines[i].strip() and indent(i) < indent(at))
    end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() and indent(i) <= indent(at))
    start = at - ("#pragma" in lines[at - 1])
    return "\n".join(lines[start : end + 1])


# ------------------------------------------------------------------------------------------------ the program
class Walk:
    """One kernel, and one number on its way through it."""

    def __init__(self) -> None:
        names: dict[str, Any] = {"sg": sg, "np": np, "heat2d": stencils(f"{EXAMPLE}:heat2d")["heat2d"]}
        exec(COMPILE, names)
        self.k: sg.Kernel = names["k"]
        self.u: Any = names["u"]
        self.result: Any = names["u1"]
        self.number = float(self.u[ROW, COL])
        self.source = self.k.source()
        self.stages: dict[str, Module] = {}
        problem = StencilProblem(self.k.stencil, self.k.shape)
        self.front = front = problem.passes(self.k.schedule, self.k.device, 3)
        self.back = [ToWarp(), Simplify(), Dce()]
        module = problem.describe()
        for p in front:
            module = self.stages[type(p).__name__] = p.run(module)
        self.program = pipelines.lower(problem, self.k.schedule, self.k.device, 3)
        assert print_module(self.program.tile) == self.k.ir("tile") and print_module(module) == self.k.ir("tile")
        func = self.program.tile.funcs[0]
        assert isinstance(func, tile.Func)
        self.func = func
        self.loop = self.one(tile.ForTiles)
        self.mma = self.one(tile.Product)
        self.fetch, self.scatter = (self.one(tile.Copy, space) for space in ("global", "shared"))

        # Which tile, which place in its window.
        across = self.k.shape[1] // self.loop.size[1]
        self.tile_number = ROW // self.loop.size[0] * across + COL // self.loop.size[1]
        self.y0, self.x0 = ROW // self.loop.size[0] * self.loop.size[0], COL // self.loop.size[1] * self.loop.size[1]
        self.radius = (self.scatter.rows - self.loop.size[0]) // 2
        self.row, self.col = ROW - self.y0 + self.radius, COL - self.x0 + self.radius

    def one(self, kind: type[Any], space: str | None = None) -> Any:
        """The only tile op of a kind in the kernel (a copy: out of ``space``)."""
        found = [op for op in node.walk(self.func.body) if type(op) is kind]
        found = [op for op in found if space is None or op.src.space == space]
        assert len(found) == 1, (kind, len(found))
        return found[0]

    @cached_property
    def seen(self) -> list[tuple[int, int, int]]:
        """(slice, product, lane) of every operand A of an mma of the tile that was this number, by running it."""
        bound: Bound = launches(self.program.warp)[0]
        func, products = bound.func, self.mma.spread.products
        loops = [op for op in node.walk(func.body) if isinstance(op, warp.For) and _has_mma(op.body)]
        outer = [op for op in node.walk(func.body) if isinstance(op, warp.For) and any(x in op.body for x in loops)]
        outer = [op for op in outer if op.var.name != "turn"]
        values = {v.name: v for op in node.walk(func.body) for v in node.results(op)}
        per, lanes, slices = self.mma.depth // 4, 32, len(self.mma.a) * self.mma.depth // 4
        probe = Buffer("probe", f64, slices * products * lanes, "global")

        def watch(op: node.Op) -> node.Op:
            if not isinstance(op, warp.For) or not _has_mma(op.body):
                return op
            part = next(n for n, other in enumerate(loops) if other.var == op.var)
            slice_: Expr = outer[part].var + part * per
            product = values["first"] + op.var
            body: list[node.Op] = []
            for inner in op.body:
                if isinstance(inner, warp.Mma):
                    at = (slice_ * products + product) * lanes + Value("lane", lo=0, hi=31)
                    body.append(warp.St(probe, at, (inner.a[0],), values["number"].eq(self.tile_number)))
                body.append(inner)
            return replace(op, body=tuple(body))

        watched = replace(func, body=node.rewrite(func.body, watch), params=(*func.params, probe))
        record, out = np.full(probe.size, np.nan), np.full(self.u.size, np.nan)
        roles = {"in": self.u.ravel(), "u": self.u.ravel(), "out": out}
        args = {p.name: roles[role] if role in roles else constant(self.program.warp, role, p)
                for p, role in bound.roles}  # fmt: skip
        run(watched, {**args, "probe": record}, checks=("bounds",)).raise_if_errors()
        assert out[ROW * self.k.shape[1] + COL] == self.result[ROW, COL]
        hits = np.argwhere(record.reshape(slices, products, lanes) == self.number)
        return [(int(s), int(i), int(lane)) for s, i, lane in hits]

    @cached_property
    def weights(self) -> Any:
        """The fused weights, one step's convolved with itself."""
        op = self.stages["FuseTime"].funcs[0]
        edge = 2 * self.radius + 1
        w = np.zeros((edge, edge))
        for (dy, dx), value in op.taps:  # type: ignore[attr-defined]
            w[dy + self.radius, dx + self.radius] = value
        return w

    @cached_property
    def fragments(self) -> Any:
        """The table of weights, [slice, lane]."""
        bound = launches(self.program.warp)[0]
        param, role = next((p, r) for p, r in bound.roles if getattr(p, "name", "") == "wt")
        return constant(self.program.warp, role, param).reshape(-1, 32)

    def products(self) -> list[dict[str, Any]]:
        """Each mma that multiplies the number, in order: where it stands and what it adds to which output."""
        shape, per = SHAPES[self.mma.shape], self.mma.depth // 4
        a_rows, a_cols = shape.a.table()
        b_rows, b_cols = shape.b.table()
        per_warp, group = self.mma.spread.products // self.mma.spread.warps, 2 * self.radius + 2
        found = []
        for s, i, lane in self.seen:
            g, t = int(a_rows[0, lane]), int(a_cols[0, lane])
            adds = []
            for c in range(group):
                holder = int(np.flatnonzero((b_rows[0] == t) & (b_cols[0] == c))[0])
                if (w := float(self.fragments[s, holder])) != 0.0:
                    adds.append((self.y0 + i, self.x0 + g * group + c, w, c, holder))
            found.append(
                {"s": s, "i": i, "lane": lane, "g": g, "t": t, "q": 4 * (s % per) + t, "matrix": "AB"[s // per],
                 "warp": i // per_warp, "local": i % per_warp, "adds": adds}
            )  # fmt: skip
        # The same as the definition: out[p] takes w[d] * u[p + d], so u[ROW, COL] reaches out[ROW - dy, COL - dx].
        made = {(r, c): w for p in found for r, c, w, _, _ in p["adds"]}
        meant = {(ROW - dy + self.radius, COL - dx + self.radius): float(w)
                 for (dy, dx), w in np.ndenumerate(self.weights) if w}  # fmt: skip
        assert made == meant and len(made) == sum(len(p["adds"]) for p in found)
        return sorted(found, key=lambda p: (p["s"], p["i"]))

    @cached_property
    def own(self) -> dict[str, Any]:
        """The mma that adds the number to the output at its own place."""
        return next(p for p in self.products() if any(a[:2] == (ROW, COL) for a in p["adds"]))

    # -------------------------------------------------------------------------------------------- the excerpts
    def formula(self) -> str:
        lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
        at = find(lines, "@sg.stencil")
        return fenced("\n".join(lines[at : find(lines, "return 0.5", 0) + 1]), "python")

    def compile(self) -> str:
        return "\n\n".join(
            [
                fenced(COMPILE, "python"),
                f"The number we follow is `u[{ROW}, {COL}]` = **{self.number:.4f}**. The schedule with its defaults:",
                fenced(str(self.k.schedule)),
            ]
        )

    def op(self) -> str:
        return fenced(self.k.ir("op"))

    def fused_weights(self) -> str:
        denominator = 8**3
        rows = [" ".join(f"{value * denominator:4.0f}" for value in row) for row in self.weights]
        assert np.array_equal(self.weights * denominator, np.round(self.weights * denominator))
        return fenced("\n".join([f"weights x {denominator}:", *rows]))

    def passes(self) -> str:
        levels = (("to the tile level", self.front), ("to the warp level", self.back))
        return fenced("\n".join(f"{level}:  {print_pipeline([p])}" for level, passes in levels for p in passes))

    def _tile(self, stage: str) -> str:
        return fenced(around(print_module(self.stages[stage]), "tile.product", up=1))

    def tile_first(self) -> str:
        return self._tile("Stencil2Row")

    def tile_ring(self) -> str:
        names = [re.match(r"\s*(tile\.\w+)", line) for line in print_module(self.stages["Pipeline"]).splitlines()]
        order = [m[1] for m in names if m]
        body = order[order.index("tile.for_tiles") + 1 : order.index("tile.store") + 1]
        return f"The body of the loop is now: {', '.join(f'`{name}`' for name in body)}."

    def tile_last(self) -> str:
        return self._tile("Barriers")

    def where_tile(self) -> str:
        blocks = self.func.blocks
        raw = self.fetch.maps[0](self.row, COL - self.x0 + (self.fetch.cols - self.loop.size[1]) // 2)
        read = self.scatter.src_map(self.row, self.col)
        assert raw == read, (raw, read)
        a, b = (m(self.row, self.col) for m in self.scatter.maps)
        stride = self.k.ir("tile").split("tile.alloc buf=@ab")[1].split("c<")[1].split("]")[0]
        split = int(self.scatter.maps[1](0, 2 * self.radius + 1).lo)  # B's first element
        n, width = int(stride), self.fetch.cols
        rows = [
            ["cell of the field", f"row {ROW}, column {COL}"],
            ["tile", f"{self.loop.size[0]} x {self.loop.size[1]} outputs from row {self.y0}, column {self.x0} on: "
             f"number {self.tile_number}"],
            ["who has it", f"block {self.tile_number % blocks} of {blocks}, on its turn {self.tile_number // blocks}"],
            ["place in the window", f"row {ROW} - {self.y0} + {self.radius} = {self.row}, column {COL} - {self.x0} + "
             f"{self.radius} = {self.col}"],
            ["element of the raw tile", f"`raw[{raw}]` (row {int(str(raw)) // width} of {width} columns)"],
            ["element of A", f"`ab[{a}]`: row {int(str(a)) // n}, column {int(str(a)) % n}"],
            ["element of B", f"`ab[{b}]`: {int(str(b)) - split} past B's first element, row "
             f"{(int(str(b)) - split) // n}, column {(int(str(b)) - split) % n}"],
        ]  # fmt: skip
        return table(["what", "where"], rows)

    def layout(self) -> str:
        k = 2 * self.radius + 1
        return fenced(stencil2row_a(k, self.loop.size[1] // (k + 1), self.scatter.rows).picture(limit=11))

    def warp_fetch(self) -> str:
        return fenced(around(self.k.ir("warp"), "warp.cp_async @raw", nth=3))

    def warp_scatter(self) -> str:
        return fenced(around(self.k.ir("warp"), "warp.ld @raw"))

    def warp_mma(self) -> str:
        return fenced(around(self.k.ir("warp"), "warp.mma", up=2))

    def warp_mma_b(self) -> str:
        line = next(x for x in self.k.ir("warp").splitlines() if "%a_1: f64" in x)
        return fenced(line)

    def warp_store(self) -> str:
        return fenced(around(self.k.ir("warp"), "warp.st @out"))

    def all_mma(self) -> str:
        rows = []
        for p in self.products():
            adds = ", ".join(f"[{r}, {c}] x {w * 512:g}" for r, c, w, _, _ in p["adds"]) or "none: its weights are 0"
            rows.append([f"{p['matrix']}, {p['s']}", p["i"], p["warp"], p["local"], p["lane"], p["q"], adds])
        head = ["matrix, slice `s`", "product", "warp", "its `i`", "lane", "column q", "outputs x 512 times the weight"]
        adds = sum(len(p["adds"]) for p in self.products())
        return table(head, rows) + f"\n\n{len(rows)} mma, {adds} outputs: as many as there are weights that are not 0."

    def one_mma(self) -> str:
        p = self.own
        shape = SHAPES[self.mma.shape]
        _, _, w, c, holder = next(a for a in p["adds"] if a[:2] == (ROW, COL))
        rows, cols = shape.c.table()
        element, lane = (int(x) for x in np.argwhere((rows == p["g"]) & (cols == c))[0])
        regs = len(shape.c.elements)
        group = 2 * self.radius + 2
        first, from_ = p["local"] * regs, self.scatter.maps[0](self.row, self.col)
        row, col = self.y0 + p["i"], self.x0 + p["g"] * group + c
        lines = [
            f"- **Operand A.** Lane {p['lane']} of warp {p['warp']} has g = {p['lane']} // 4 = {p['g']} and "
            f"t = {p['lane']} % 4 = {p['t']}.",
            f"  In slice s = {p['s']} of its product i = {p['local']} it loads `a` = **{self.number:.4f}** from "
            f"`ab[{from_}]`:",
            f"  row {p['g']}, column {p['t']} of the 8 x 4 fragment.",
            f"- **Operand B.** The weight of column {c} for it is in lane {holder}, register `wf[{p['s']}]` = {w:g} "
            f"(= {w * 512:g}/512,",
            "  the middle of the fused weights).",
            f"- **Accumulator.** Row {p['g']}, column {c} of the 8 x 8 result is in lane {lane}, element {element}: "
            f"`acc[{first + element}]`.",
            f"- **Output.** Product {p['i']} is output row {self.y0} + {p['i']} = {row}.",
            f"  Row {p['g']}, column {c} of it is output column {self.x0} + {p['g']} * {group} + {c} = {col}.",
            f"- **Store.** Lane {lane} stores `acc[{first}]` and `acc[{first + 1}]` as one pair to "
            f"`out[{row} * {self.k.shape[1]} + {col - element}]`.",
        ]
        return "\n".join(lines)

    def cuda_helper(self) -> str:
        return fenced(around(self.source, "mma.sync.aligned"), "cuda")

    def cuda_mma(self) -> str:
        return fenced(around(self.source, "= mma_f64_m8n8k4(", up=2), "cuda")

    def cuda_store(self) -> str:
        return fenced(around(self.source, "make_double2(o, o_1)"), "cuda")

    def value(self) -> str:
        v = self.u
        for _ in range(3):
            inner = 0.5 * v[1:-1, 1:-1] + 0.125 * (v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:])
            v = np.pad(inner, 1, constant_values=np.nan)  # the border does not reach our cell in three steps
        error = abs(float(v[ROW, COL]) - float(self.result[ROW, COL]))
        assert error < 1e-12
        return (
            f"`u1[{ROW}, {COL}]` = {self.result[ROW, COL]:.4f} on the emulator, {v[ROW, COL]:.4f} from three plain\n"
            "NumPy steps, the same to 1e-12. (The field is a plane, and a mean around a point of a plane is the plane\n"
            "there; the script also compares the table of the products with the fused weights, one by one.)"
        )


def _has_mma(ops: tuple[node.Op, ...]) -> bool:
    return any(isinstance(op, warp.Mma) for op in ops)


def fill(document: str) -> str:
    """The document with every excerpt made anew."""
    walk = Walk()
    return MARK.sub(lambda m: f"{m[1]}{getattr(walk, m[2])()}\n{m[3]}", document)


def main() -> int:
    """Write the excerpts; with ``--check`` write nothing and exit with 1 if one is not current."""
    old = TARGET.read_text(encoding="utf-8")
    new = fill(old)
    if "--check" in sys.argv[1:]:
        print(f"docs/walkthrough.md is {'current' if new == old else 'old: run python .ci/walkthrough.py'}")
        return 0 if new == old else 1
    TARGET.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
