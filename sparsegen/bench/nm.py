"""Suite ``nm``: products with N:M matrices, beside torch's product with the dense matrix and a hand-written floor.

=========  ======================================================================================================
wide       many columns of x: vectors of 16, 32, 64 or 128 rows share their pattern
narrow     one column to 8, each row (or block of 4 x 4) has its own pattern, on CUDA cores; f16 and f32
decoded    many columns, each row or block has its own pattern: W is decoded for tensor cores
odd        sizes that nothing divides, beside even ones
semi       2:4, each row its own, beside torch's semi-structured product (cuSPARSELt, x in the order it likes better)
=========  ======================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparsegen.bench import floors
from sparsegen.bench.bitmaps import COLD, WARM
from sparsegen.bench.cells import Cells, Column, Result, judged, micro, micros, of, part, ratio, schedule, size, table
from sparsegen.bench.harness import TOLERANCE
from sparsegen.bench.products import ProductRow, Products, packed
from sparsegen.formats import sparse
from sparsegen.pruning import prune

if TYPE_CHECKING:
    from sparsegen.kernel import SpmmKernel

PARTS: Final = ("wide", "narrow", "decoded", "odd", "semi")
WINDOW: Final = 32
#: Rows that share their columns, or the rows and columns of a block.
Vector = int | tuple[int, int]
#: States of L2 in words.
L2: Final = {COLD: "cold", WARM: "hot"}


@dataclass(frozen=True)
class NmCase:
    """What to measure: ``kept`` of every ``window`` columns, ``vector`` rows (or blocks) alike; the microseconds asked
    for, at least and aimed at, in a ``state`` of L2."""

    part: str
    shape: tuple[int, int, int]
    kept: int
    vector: Vector
    dtype: str = "f16"
    state: str = WARM
    least: float | None = None
    aim: float | None = None
    window: int = WINDOW

    @property
    def name(self) -> str:
        """What the pattern is called."""
        if isinstance(self.vector, tuple):
            return f"{self.kept}:{self.window}, blocks of {self.vector[0]}x{self.vector[1]}"
        return f"{self.kept}:{self.window}, " + ("single rows" if self.vector == 1 else f"{self.vector} rows alike")


def _each(
    part: str, shape: tuple[int, int, int], vector: Vector, dtype: str, state: str,
    goals: Sequence[tuple[float | None, float | None]],
) -> list[NmCase]:  # fmt: skip
    """The cases of 50, 25 and 12.5 %."""
    return [
        NmCase(part, shape, kept, vector, dtype, state, *goal) for kept, goal in zip((16, 8, 4), goals, strict=True)
    ]


_SQUARE, _LARGE, _BLOCK = (4096, 4096), (8192, 8192), (4, 4)
CASES: Final[tuple[NmCase, ...]] = (
    *_each("wide", (*_SQUARE, 4096), 128, "f16", WARM, [(108, 85), (61, 46), (36, 26)]),
    *_each("wide", (*_SQUARE, 4096), 64, "f16", WARM, [(155, 120), (84, 64), (46, 35)]),
    *_each("wide", (*_SQUARE, 4096), 32, "f16", WARM, [(None, 150), (140, 85), (89, 50)]),
    *_each("wide", (*_SQUARE, 4096), 16, "f16", WARM, [(None, None)] * 3),
    *_each("wide", (*_SQUARE, 1024), 128, "f16", WARM, [(27.5, 22), (16, 12.5), (10.5, 8)]),
    *_each("wide", (*_LARGE, 16), 64, "f16", COLD, [(28, 23), (18, 14), (12.5, 9.5)]),
    *_each("wide", (*_LARGE, 256), 128, "f16", COLD, [(33, 28), (21, 16), (15.5, 11.5)]),
    *_each("wide", (*_SQUARE, 4096), 128, "bf16", WARM, [(108, 85), (61, 46), (36, 26)]),
    *_each("wide", (*_SQUARE, 4096), 32, "f32", WARM, [(1463, 1300), (762, 680), (447, 390)]),
    *_each("narrow", (*_LARGE, 1), 1, "f16", WARM, [(24, 21.5), (14, 11), (8.5, 6.2)]),
    *_each("narrow", (*_LARGE, 1), 1, "f32", WARM, [(39.5, 37), (21.5, 19), (12.4, 10)]),
    *_each("narrow", (*_LARGE, 4), 1, "f16", COLD, [(32, 26), (20.5, 15), (15, 11)]),
    *_each("narrow", (*_LARGE, 8), 1, "f16", COLD, [(44, 30), (27, 18), (20, 13)]),
    NmCase("narrow", (*_LARGE, 1), 3, 1, "f16", WARM, 7.5, 5.2),
    *_each("narrow", (*_LARGE, 4), _BLOCK, "f16", COLD, [(32, 26), (20.5, 15), (15, 11)]),
    *_each("narrow", (*_LARGE, 8), _BLOCK, "f16", COLD, [(44, 30), (27, 18), (20, 13)]),
    *_each("decoded", (*_SQUARE, 4096), 1, "f16", WARM, [(None, None), (None, None), (204, 163)]),
    *_each("decoded", (*_SQUARE, 4096), _BLOCK, "f16", WARM, [(None, None), (None, None), (204, 163)]),
    *_each("decoded", (*_LARGE, 16), 1, "f16", COLD, [(None, None)] * 3),
    *_each("decoded", (*_LARGE, 64), 1, "f16", COLD, [(None, None)] * 3),
    NmCase("odd", (5120, 4096, 40), 8, 64),
    NmCase("odd", (5111, 4093, 37), 8, 64),
    NmCase("odd", (5120, 4096, 1), 8, 1),
    NmCase("odd", (5111, 4093, 1), 8, 1),
    NmCase("semi", (*_SQUARE, 4096), 2, 1, window=4),
    NmCase("semi", (*_SQUARE, 4096), 2, 1, "bf16", window=4),
    NmCase("semi", (28672, 8192, 16), 2, 1, "f16", COLD, 77.8, 70, window=4),
    NmCase("semi", (*_LARGE, 256), 2, 1, "f16", COLD, window=4),
)


def cases(parts: Sequence[str]) -> list[NmCase]:
    """The cases of some parts."""
    return [case for case in CASES if case.part in parts]


@dataclass(frozen=True, kw_only=True)
class NmRow(ProductRow):
    """One product; ``hot_s``: a call with warm L2; ``dense``, ``semi`` (torch's semi-structured product) and ``floor``:
    the others' cold and hot times; ``target`` and ``aim`` are of the time in ``state``."""

    state: str
    target: float | None = None
    aim: float | None = None
    hot_s: float | None = None
    dense: Mapping[str, float] | None = None
    semi: Mapping[str, float] | None = None
    floor: Mapping[str, float] | None = None


class Patterns(Products[NmCase, NmRow]):
    """Suite ``nm`` on a GPU."""

    row = NmRow

    def prepare(self, cases: Sequence[NmCase]) -> None:
        """The pruned matrices, each once."""
        keys = dict.fromkeys(map(_key, cases))
        self._dense = {key: self._matrix(*key, self.seed + at) for at, key in enumerate(keys)}
        self._encoded = {
            key: sparse(w, format="nm", n=key[1], m=key[4], vector=key[2]) for key, w in self._dense.items()
        }

    def _matrix(self, shape: tuple[int, ...], kept: int, vector: Vector, dtype: str, window: int, seed: int) -> Any:
        w = self.torch.randn(shape, generator=self.random(seed), device=self.device).to(self.dtype(dtype))
        return prune(w, "nm", n=kept, m=window, vector=vector)

    def build(self, case: NmCase) -> SpmmKernel:
        """The kernel that the cost model takes."""
        return self.kernel(self._encoded[_key(case)], case.shape[2], ["rows"])

    def labels(self, case: NmCase, seed: int) -> dict[str, Any]:
        """What every row says of its case, and the floor of it."""
        name = floors.pattern(case.shape, case.kept, case.window, case.vector, case.dtype)
        found = {state: floors.best(self.floors, f"{name}, {L2[state]}") for state in L2}
        return {
            "part": case.part, "case": case.name, "shape": case.shape, "dtype": case.dtype, "seed": seed,
            "state": case.state, "target": case.least and case.least * 1e-6, "aim": case.aim and case.aim * 1e-6,
            "floor": {state: 1 / floor.rate for state, floor in found.items() if floor} or None,
        }  # fmt: skip

    def measure(self, case: NmCase, kernel: SpmmKernel, seed: int) -> NmRow:
        """Check, then time a product and torch's with the dense matrix, x in the order that it likes better."""
        torch, dense = self.torch, self._dense[_key(case)]
        x = self.uniform((case.shape[1], case.shape[2]), case.dtype, seed)
        exact = self.exact(dense, x)
        y = torch.empty_like(exact, dtype=x.dtype)
        call = partial(kernel, x, out=y)
        error, same = self.checked(call, y, exact)
        timing, hot = self.series(call, COLD), self.hot(call)
        theirs, semi = [], []
        for order in ("rows", "columns"):
            u, out = packed(x, order), packed(y, order)
            library = partial(torch.mm, dense, u, out=out)
            theirs.append({COLD: self.series(library, COLD).median, WARM: self.hot(library)})
            if case.part == "semi":
                library = partial(torch.mm, torch.sparse.to_sparse_semi_structured(dense), u)
                semi.append({COLD: self.series(self.captured(library), COLD).median, WARM: self.hot(library)})
        row = NmRow(
            **self.labels(case, seed), **self.figures(kernel, "rows", timing), hot_s=hot, error=error, same=same,
            dense={state: min(times[state] for times in theirs) for state in L2},
            semi={state: min(times[state] for times in semi) for state in L2} if semi else None,
        )  # fmt: skip
        took = hot if case.state == WARM else timing.median
        right = error <= TOLERANCE[case.dtype] and same
        asked = [row.target or took, row.semi[case.state] if row.semi else took]
        return replace(row, ok=right and took <= min(asked))

    @staticmethod
    def line(row: NmRow) -> str:
        """A row as a line of progress."""
        what = f"{row.case}, {'x'.join(map(str, row.shape))} {row.dtype}"
        if row.median_s is None or row.dense is None or row.hot_s is None:
            return f"{what}: {row.failed}"
        told = f"{row.hot_s * 1e6:.2f} us hot, {row.median_s * 1e6:.2f} cold, dense {row.dense[WARM] * 1e6:.1f} hot"
        return f"{what}: {told}, error {row.error:.1e}{'' if row.ok else ', NOT OK'}; {row.schedule}"


def _key(case: NmCase) -> tuple[tuple[int, ...], int, Vector, str, int]:
    return case.shape[:2], case.kept, case.vector, case.dtype, case.window


def in_state(row: Mapping[str, Any]) -> float | None:
    """Our time in the state that is asked for."""
    took: float | None = row["hot_s"] if row["state"] == WARM else row["median_s"]
    return took


def _of(name: str) -> Column:
    return lambda row: micro((row.get(name) or {}).get(row["state"]))


_COLUMNS: Final[dict[str, Column]] = {
    "pattern": of("case"), "size": size, "type": of("dtype"), "L2": lambda row: L2[row["state"]],
    "at least": micros("target", "g"), "aim": micros("aim", "g"), "µs": lambda row: judged(row, micro(in_state(row))),
    "floor": _of("floor"), "dense": _of("dense"), "semi-structured": _of("semi"),
    "over dense": lambda row: ratio((row["dense"] or {}).get(row["state"]), in_state(row)),
    "hot": micros("hot_s"), "cold": micros("median_s"), "model": micros("predicted_s"), "bound by": of("bound"),
    "registers": of("regs", "d"), "error": of("error", ".0e"), "schedule": schedule,
}  # fmt: skip


def view(name: str, found: Result) -> Cells:
    """The table of a part."""
    return table(part(found, name), _COLUMNS)


#: One line for each way to multiply: the part and the words of the case behind its numbers, type, size, and what it is.
_HEADLINES: Final = (
    ("wide", "128 rows alike", "f16", [4096, 4096, 4096], "vectors of 128 rows"),
    ("wide", "32 rows alike", "f32", [4096, 4096, 4096], "vectors of 32 rows"),
    ("decoded", "single rows", "f16", [4096, 4096, 4096], "single elements"),
    ("narrow", "single rows", "f16", [8192, 8192, 1], "single elements"),
    ("semi", "single rows", "f16", [4096, 4096, 4096], "2:4"),
)


def headline(found: Result) -> Cells:
    """One line for each way to multiply: µs at 50, 25 and 12.5 % kept, and what the dense product takes."""
    shares = {"1:2": "50 %", "1:4": "25 %", "1:8": "12.5 %"}
    cells = [["pattern", "size", "type", *shares.values(), "dense", "over dense"]]
    for name, words, dtype, shape, what in _HEADLINES:
        rows = {}
        for row in part(found, name):
            numbers, _, rest = row["case"].partition(", ")
            if (rest, row["dtype"], list(row["shape"])) == (words, dtype, shape):
                kept, window = map(int, numbers.split(":"))
                rows[f"1:{window // kept}" if window % kept == 0 else numbers] = row
        if rows:
            last = rows.get("1:8") or rows.get("1:4") or next(iter(rows.values()))
            took = [judged(rows[share], micro(in_state(rows[share]))) if share in rows else "" for share in shares]
            cells.append([what, size(last), dtype, *took, _of("dense")(last), _COLUMNS["over dense"](last)])
    return cells
