"""What ``sparsify`` does with which layer: rules in order, of which the first that fits a layer counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Final

from sparsegen.arguments import positive
from sparsegen.formats.nm import Vector, checked
from sparsegen.ir.errors import ProductError
from sparsegen.pruning import OPTIONS
from sparsegen.schedule import nearest

#: pattern of a rule -> the words that it takes.
_TAKEN: Final[dict[str, tuple[str, ...]]] = {**OPTIONS, "vector": ("sparsity", "vector", "bits"), "dense": ()}


@dataclass(frozen=True)
class Rule:
    """Layers, by ``names`` (globs such as ``"*.mlp.*"``, of the whole name) and by at least ``min_size`` weights, and
    the pattern that they get.

    ``"unstructured"``: the share ``sparsity`` of the weights goes.  ``"nm"``: ``n`` of every ``m`` inputs stay, alike
    in ``vector`` outputs.  ``"vector"``: the share ``sparsity`` of the vectors of ``vector`` outputs goes; with
    ``bits=8`` weights are integers (:class:`sparsegen.torch.QuantizedLinear`).  ``"dense"``: nothing is done.
    A share that is not given is 0.6.
    """

    names: str | tuple[str, ...] = "*"
    pattern: str = "unstructured"
    min_size: int = 1
    sparsity: float | None = None
    n: int | None = None
    m: int | None = None
    vector: Vector | None = None
    bits: int | None = None

    def __post_init__(self) -> None:
        """ProductError or FormatError for words that make no rule."""
        names = (self.names,) if isinstance(self.names, str) else tuple(self.names)
        if not names or not all(isinstance(name, str) for name in names):
            raise ProductError(f"names={self.names!r} are no names", hint='give globs, such as names=("*.mlp.*",)')
        object.__setattr__(self, "names", names)
        positive(self.min_size, "min_size", ProductError)
        if not isinstance(self.pattern, str) or self.pattern not in _TAKEN:
            raise ProductError(
                f"there is no pattern {self.pattern!r} of a rule",
                hint=f"{nearest(str(self.pattern), _TAKEN)}use one of {', '.join(_TAKEN)}",
            )
        given = [word for word in ("sparsity", "n", "m", "vector", "bits") if getattr(self, word) is not None]
        if foreign := [word for word in given if word not in _TAKEN[self.pattern]]:
            raise ProductError(
                f'the pattern "{self.pattern}" takes no {" and no ".join(foreign)}',
                hint=f"leave it away: it takes {', '.join(_TAKEN[self.pattern]) or 'nothing more'}",
            )
        share = self.share
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise ProductError(f"sparsity={share!r} is no share of the weights", hint="0.6 prunes 60 %")
        if self.bits not in (None, 8):
            raise ProductError(f"bits={self.bits!r}: layers are quantised to 8 bits", hint="give bits=8, or none")
        if self.bits and self.vector not in (None, 2, 4, 8):
            raise ProductError(f"vector={self.vector!r} with bits=8", hint="give vector=2, 4 or 8 outputs")
        if self.pattern == "nm":
            checked(2 if self.n is None else self.n, 4 if self.m is None else self.m, self.vector or 1)
        elif self.vector is not None:
            positive(self.vector, "vector", ProductError)

    @property
    def share(self) -> float:
        """The share of the weights, or of their vectors, that goes."""
        return 0.6 if self.sparsity is None else self.sparsity

    @property
    def units(self) -> tuple[int, int]:
        """Rows and columns that a pattern leaves together."""
        if self.pattern != "nm":
            return 1, 1
        _, m, (rows, _) = checked(2 if self.n is None else self.n, 4 if self.m is None else self.m, self.vector or 1)
        return rows, m

    def named(self, name: str) -> bool:
        """Whether it speaks of a layer of this name."""
        return any(fnmatchcase(name, glob) for glob in self.names)

    def __str__(self) -> str:
        """``unstructured 60 %``, ``nm 2:4``, ``vector 60 % 8 bits``."""
        if self.pattern == "dense":
            return "dense"
        if self.pattern == "nm":
            return f"nm {self.n or 2}:{self.m or 4}" + (f" vector {self.vector}" if self.vector else "")
        tall = "" if self.vector is None else f" x{self.vector}"
        return f"{self.pattern}{tall} {100 * self.share:g} %" + (f" {self.bits} bits" if self.bits else "")


#: Every linear layer but the one that makes words of the last state.
DEFAULT: Final = (Rule(("lm_head", "*.lm_head"), "dense"), Rule())


@dataclass(frozen=True)
class SparseConfig:
    """Rules in order; the first that fits a layer counts, and a layer that none fits stays dense."""

    rules: tuple[Rule, ...] = DEFAULT

    @staticmethod
    def of(given: Any) -> SparseConfig:
        """From a config, a rule or rules, or dicts with the same words; ProductError for unknown ones."""
        if given is None:
            return SparseConfig()
        if isinstance(given, SparseConfig):
            return given
        if isinstance(given, Mapping):
            if "rules" not in given:
                return SparseConfig((_rule(given),))
            _known(given, ("rules",), "a config")
            given = given["rules"]
        if isinstance(given, Rule):
            return SparseConfig((given,))
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ProductError(
                f"a config is no {type(given).__qualname__}",
                hint='pass {"rules": [{"names": "*.mlp.*"}]}, or Rule(...)',
            )
        if not (rules := tuple(_rule(each) for each in given)):
            raise ProductError("a config without rules", hint="leave the config away: 60 % of all linear layers go")
        return SparseConfig(rules)

    def rule(self, name: str, size: int) -> Rule | None:
        """That of a layer of so many weights; None if there is none."""
        return next((rule for rule in self.rules if rule.named(name) and size >= rule.min_size), None)


def _rule(given: Any) -> Rule:
    if isinstance(given, Rule):
        return given
    if not isinstance(given, Mapping):
        raise ProductError(f"{given!r} is no rule", hint='pass Rule("*.mlp.*", sparsity=0.6), or a dict of its words')
    _known(given, tuple(field.name for field in fields(Rule)), "a rule")
    return Rule(**given)


def _known(given: Mapping[Any, Any], words: tuple[str, ...], what: str) -> None:
    """ProductError for words that ``what`` does not have."""
    if unknown := [word for word in given if word not in words]:
        raise ProductError(
            f"{what} has no word {unknown[0]!r}", hint=f"{nearest(str(unknown[0]), words)}use {', '.join(words)}"
        )
