"""Suite ``models``: whole decoders that generate tokens, beside the same decoders with dense layers.

=================  ================================================================================================
opt-13b            OPT-13B, 60 % zeros, a batch of 16 (SpInfer's paper): where memory and time go
llama-8b           Llama-3-8B, 60 % zeros, batches of 1, 4 and 16
llama-8b-nm        Llama-3-8B, 8 of every 32 inputs alike in 64 outputs, batches of 1, 4 and 16
llama-8b-joined    as llama-8b, with q, k and v as one layer, and gate and up as one, in the dense decoder too
llama-8b-compiled  those with targets, joined, their layers compiled by ``torch.compile``, the dense ones too
=================  ================================================================================================

Weights are random and pruned by magnitude; the dense model has the same zeros.  Its layers are cuBLAS's, and both
take their steps as one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sparsegen.bench.cells import Cells, Column, Result, Row, judged, number, of, part, ratio, table
from sparsegen.bench.config import LLAMA_8B, OPT_13B, Config
from sparsegen.bench.harness import AnyRow

PARTS: Final = ("opt-13b", "llama-8b", "llama-8b-nm", "llama-8b-joined", "llama-8b-compiled")
#: Tokens of a prompt, and tokens that are generated after it.
PROMPT, GENERATED = 64, 256
#: Layers of a model with ``--quick``.
QUICK: Final = 4
#: What |scores' - scores| / |scores| may be: f16 rounds after each of some hundred layers.
TOLERANCE: Final = 0.01
#: The share of tokens that must be the dense model's: of random weights the best two scores are often close.
AGREEMENT: Final = 0.9
#: Where a step's time goes.
SPLIT: Final = ("layers", "head", "attention", "rest")


@dataclass(frozen=True)
class Pruned:
    """What layers become: ``words`` of :meth:`sparsegen.torch.SparseLinear.from_linear`."""

    name: str
    sparsity: float | None = None
    n: int | None = None
    m: int | None = None
    vector: int | None = None

    @property
    def words(self) -> dict[str, Any]:
        """The pattern's words, without a share of zeros."""
        return {} if self.n is None else {"pattern": "nm", "n": self.n, "m": self.m, "vector": self.vector}


ANYWHERE: Final = Pruned("60 % zeros", sparsity=0.6)
ALIKE: Final = Pruned("8:32, 64 rows alike", n=8, m=32, vector=64)


@dataclass(frozen=True)
class ModelCase:
    """What to measure: ``least`` and ``aim`` are tokens a second over those of the dense model.

    ``joined``: layers of one input are one; ``compiled``: those of the decoder, by torch.
    """

    part: str
    config: Config
    pruned: Pruned
    batch: int
    joined: bool = False
    compiled: bool = False
    least: float | None = None
    aim: float | None = None
    prompt: int = PROMPT
    generated: int = GENERATED


#: Tokens a second over those of the dense Llama, at least and aimed at, by pattern and batch.
GOALS: Final = {(ANYWHERE, 1): (1.35, 1.6), (ALIKE, 16): (1.8, 2.5)}


def _llama(part: str, pruned: Pruned, joined: bool = False) -> list[ModelCase]:
    return [
        ModelCase(part, LLAMA_8B, pruned, batch, joined, False, *GOALS.get((pruned, batch), (None, None)))
        for batch in (1, 4, 16)
    ]


CASES: Final = (
    ModelCase("opt-13b", OPT_13B, ANYWHERE, 16),
    *_llama("llama-8b", ANYWHERE),
    *_llama("llama-8b-nm", ALIKE),
    *_llama("llama-8b-joined", ANYWHERE, True),
    *(ModelCase("llama-8b-compiled", LLAMA_8B, *which, True, True, *goal) for which, goal in GOALS.items()),
)


def cases(parts: Sequence[str], quick: bool = False) -> list[ModelCase]:
    """The cases of some parts; ``quick``: of models with few layers, which need reach nothing."""
    found = [case for case in CASES if case.part in parts]
    if not quick:
        return found
    return [replace(case, config=replace(case.config, layers=QUICK), least=None, aim=None) for case in found]


@dataclass(frozen=True, kw_only=True)
class ModelRow(AnyRow):
    """One decoder and batch; ``shape``: batch, tokens of a prompt, tokens generated; times are seconds of a step.

    ``median_s`` of the sparse, ``dense_s`` of the dense decoder; ``split`` and ``dense_split``: where that goes, by
    ``SPLIT``; ``memory`` and ``dense_memory``: bytes by ``weights``, ``cache`` and ``rest``, together the most that
    torch had allocated, and those taken ``outside`` of torch.  ``error``: |scores' - scores| / |scores| of prompts and
    the first steps; ``agreement``: the share of their tokens that are the dense decoder's.  ``target`` and ``aim``:
    tokens a second over the dense ones.
    """

    seed: int
    layers: int
    pattern: str
    joined: bool = False
    compiled: bool
    target: float | None = None
    aim: float | None = None
    median_s: float | None = None
    dense_s: float | None = None
    agreement: float | None = None
    split: Mapping[str, float] | None = None
    dense_split: Mapping[str, float] | None = None
    memory: Mapping[str, int] | None = None
    dense_memory: Mapping[str, int] | None = None


def _tokens(key: str) -> Column:
    return lambda row: number(row["shape"][0] / row[key] if row[key] else None, ".0f")


def _milli(key: str, name: str) -> Column:
    def cell(row: Row) -> str:
        ours, theirs = (row[where] and 1e3 * row[where][name] for where in (key, f"dense_{key}"))
        return f"{number(ours, '.2f')} / {number(theirs, '.2f')}"

    return cell


def _giga(name: str) -> Column:
    def cell(row: Row) -> str:
        ours, theirs = (row[key] and row[key][name] / 1e9 for key in ("memory", "dense_memory"))
        return f"{number(ours, '.2f')} / {number(theirs, '.2f')}"

    return cell


def _pattern(row: Row) -> str:
    how = ", joined" * row.get("joined", False) + ", compiled" * row["compiled"]
    return f"{row['case']}, {row['pattern']}{how}"


_COLUMNS: Final[dict[str, Column]] = {
    "weights": _pattern, "batch": lambda row: str(row["shape"][0]), "tokens/s": _tokens("median_s"),
    "dense": _tokens("dense_s"), "over dense": lambda row: judged(row, ratio(row["dense_s"], row["median_s"])),
    "at least": of("target", "g"), "aim": of("aim", "g"), "error": of("error", ".0e"),
    "same tokens": of("agreement", ".1%"),
}  # fmt: skip
_TIME: Final[dict[str, Column]] = {f"{name}, ms": _milli("split", name) for name in SPLIT}
_MEMORY: Final[dict[str, Column]] = {f"{name}, GB": _giga(name) for name in ("weights", "cache", "rest", "outside")}
_SPLIT: Final = {name: _COLUMNS[name] for name in ("weights", "batch")} | _TIME | _MEMORY


def view(name: str, found: Result) -> Cells:
    """The table of a part."""
    return table(part(found, name), _COLUMNS)


def split(found: Result) -> Cells:
    """Where the time of a step and memory go, sparse / dense, of all parts."""
    return table((row for row in found["rows"] if not row["failed"]), _SPLIT)
