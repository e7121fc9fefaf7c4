"""What a run of the emulator gives back: errors with line and remedy, notes, exact counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sparsegen.ir.errors import KernelFault, Loc
from sparsegen.ir.expr import Expr, text
from sparsegen.ir.node import Op, fields
from sparsegen.ir.types import Buffer


@dataclass(frozen=True)
class Finding:
    """One error (or note): what happened, to which element, by which thread, on which of the user's lines.

    ``times`` counts how many element accesses showed it; the rest describes the first of them.
    """

    kind: str
    message: str
    remedy: str = ""
    op: str = ""
    buffer: str = ""
    index: int = -1
    block: int = -1
    warp: int = -1
    lane: int = -1
    loc: Loc | None = None
    times: int = 1

    def __str__(self) -> str:
        where = [
            f"{name} {v}" for name, v in (("block", self.block), ("warp", self.warp), ("lane", self.lane)) if v >= 0
        ]
        lines = [f"{self.loc}: " if self.loc else "", f"{self.kind}: {self.message}"]
        if where:
            lines.append(f" ({', '.join(where)}{f'; {self.times} times' if self.times > 1 else ''})")
        if self.op:
            lines.append(f"\n  in {self.op}")
        if self.remedy:
            lines.append(f"\n  remedy: {self.remedy}")
        return "".join(lines)


@dataclass(frozen=True)
class Conflict:
    """The worst shared-memory conflict degree that one op showed: ``degree`` 1 is free of conflicts.

    ``declared`` is what the program says (None for copies, which say nothing); ``extra`` counts the wavefronts beyond
    the ideal, of all ``requests``.
    """

    op: str
    buffer: str
    degree: int
    loc: Loc | None = None
    requests: int = 0
    extra: int = 0
    declared: int | None = None


@dataclass(frozen=True)
class Traffic:
    """Global traffic of one op: warp requests, and the 32-byte sectors that they touch."""

    op: str
    buffer: str
    requests: int
    sectors: int
    loc: Loc | None = None

    @property
    def per_request(self) -> float:
        return self.sectors / max(1, self.requests)


@dataclass
class Report:
    """Errors, notes, exact counts, bank conflicts and global traffic of one launch (or, added up, of several)."""

    errors: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    traffic: list[Traffic] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def degree(self) -> int:
        """The worst conflict degree of all ops (1 if there is no shared access)."""
        return max((c.degree for c in self.conflicts), default=1)

    def kinds(self) -> set[str]:
        """The kinds of error that were found."""
        return {f.kind for f in self.errors}

    def __add__(self, other: Report) -> Report:
        counts = dict(self.counts)
        for k, v in other.counts.items():
            counts[k] = counts.get(k, 0) + v
        return Report(
            _merge(self.errors, other.errors), _merge(self.notes, other.notes), counts,
            [*self.conflicts, *other.conflicts], [*self.traffic, *other.traffic],
        )  # fmt: skip

    def raise_if_errors(self) -> Report:
        """Raises :class:`~sparsegen.ir.errors.KernelFault` if there are errors; else gives back the report."""
        if self.errors:
            first = self.errors[0]
            more = f" (and {len(self.errors) - 1} more errors)" if len(self.errors) > 1 else ""
            where = f" [{first.op}]" if first.op else ""
            raise KernelFault(f"{first.kind}: {first.message}{more}{where}", loc=first.loc, hint=first.remedy or None)
        return self

    def __str__(self) -> str:
        head = f"{len(self.errors)} errors, {len(self.notes)} notes"
        return "\n".join([head, *map(str, self.errors), *map(str, self.notes)])


def _merge(a: Iterable[Finding], b: Iterable[Finding]) -> list[Finding]:
    out: dict[tuple[object, ...], Finding] = {}
    for f in [*a, *b]:
        out.setdefault((f.kind, f.op, f.buffer, f.loc, f.message), f)
    return list(out.values())


def describe(op: Op) -> str:
    """The op in one short line: its name, the buffers it touches, the operands it reads."""
    args: list[str] = []
    for name, kind, f in fields(op):
        v = getattr(op, name)
        if v is None or kind in ("region", "result", "bind"):
            continue
        if isinstance(v, Buffer):
            args.append(f"@{v.name}")
        elif isinstance(v, Expr):
            args.append(f"{name} {text(v)}")
        elif kind == "attr" and v != f.default:
            args.append(f"{name} {v}")
    out = f"{op.name} {', '.join(args)}".strip()
    return out if len(out) <= 200 else out[:197] + "..."
