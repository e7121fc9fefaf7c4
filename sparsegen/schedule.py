"""Schedules: every choice that turns a problem into a kernel, as a value and as one line of text.

``str(s)`` prints the line, ``Schedule.parse(line)`` gives the same value back; nothing is hidden in between.  A line
is the name of a family and its words, such as ``tiled fuse=2 tile=32x64``; the family says which words it has, how
each is read, its range and its default.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NoReturn, TypeVar, cast

from sparsegen.ir.errors import ScheduleError
from sparsegen.notebook import facts
from sparsegen.registry import families, operations

#: What the problems of an operation are called in messages, and what a line of theirs may look like.
OPERATIONS: dict[str, tuple[str, str]] = {
    "stencil": ("stencils", "tiled fuse=2 tile=32x64"),
    "update": ("general updates", "direct block=32x8 column=4"),
    "spmm": ("sparse products", "bitmap cols=16 warps=2x8"),
    "sddmm": ("sampled products", "strips rows=256 warps=16"),
    "attention": ("sparse attention", "fused parts=4 warps=16"),
}
#: Why an operation takes no families but its own, where people ask.
WHY_UPDATES = (
    "tensor cores and fused weights need a formula that is linear, with the same coefficients in every cell: "
    "general updates take CUDA-core schedules, of one time step a pass or of several levels"
)
_WHY = {"update": f": {WHY_UPDATES}"}
S = TypeVar("S", bound="Schedule")


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'? `` for the closest known word, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}? " if close else ""


def unknown(what: str, word: str, known: Iterable[str]) -> NoReturn:
    """Raises the ScheduleError for a word that is not among ``known``."""
    known = list(known)
    raise ScheduleError(f"unknown {what} {word!r}", hint=f"{nearest(word, known)}there are: {', '.join(known)}")


# ------------------------------------------------------------------------------------------------ words
def pair(word: str, value: str) -> tuple[int, int]:
    """Reads ``32x64``."""
    m = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", value)
    if not m:
        raise ScheduleError(
            f"{word!r} is not a pair of positive numbers, so no size", hint="write two numbers, such as 32x64"
        )
    return int(m[1]), int(m[2])


def each(word: str, value: str) -> tuple[int, ...]:
    """Reads a number for each axis, such as ``32x64``."""
    if not re.fullmatch(r"[1-9]\d{0,5}(x[1-9]\d{0,5}){0,2}", value):
        raise ScheduleError(
            f"{word!r} is not a positive number for each axis", hint="write one for each axis, such as 32x64"
        )
    return tuple(map(int, value.split("x")))


def integer(word: str, value: str) -> int:
    """Reads a number from 1 up."""
    if not re.fullmatch(r"[1-9]\d{0,5}", value):
        raise ScheduleError(f"{word!r} is not a positive number, so no size", hint="write a number from 1 up")
    return int(value)


def switch(word: str, value: str) -> bool:
    """Reads ``on`` or ``off``."""
    if value not in ("on", "off"):
        raise ScheduleError(f"{word!r} is neither on nor off", hint="write on or off")
    return value == "on"


def text(word: str, value: str) -> str:
    """Reads a name, which is checked against the word's choices."""
    return value


#: By reader: the type of what it reads, and how that is written in Python.
FORMS: Mapping[Callable[[str, str], Any], tuple[type, str]] = {
    pair: (tuple, "two numbers from 1 up, such as (32, 64)"),
    each: (tuple, "a number from 1 up for each axis, such as (32, 64)"), integer: (int, "a number from 1 up"),
    switch: (bool, "True or False"), text: (str, "a name"),
}  # fmt: skip


def _are_sizes(value: Any, counts: Sequence[int]) -> bool:
    """Whether it is a tuple of so many numbers from 1 up."""
    return type(value) is tuple and len(value) in counts and all(type(n) is int and n >= 1 for n in value)


@dataclass(frozen=True)
class Word:
    """A word of a family's lines, ``name=value``.

    ``read`` makes the value of its text; ``low`` and ``high`` are the range of a number; ``choices`` are all values
    that there are.  ``auto`` in a line is the default.  A default of None is resolved for the problem at hand: with
    ``auto`` it is printed, without it the line leaves the word out.
    """

    name: str
    read: Callable[[str, str], Any]
    default: Any = None
    low: int = 1
    high: int | None = None
    choices: tuple[Any, ...] = ()
    auto: bool = False

    def check(self, value: Any) -> None:
        """ScheduleError for a value that the word never has."""
        if value is None:
            return
        kind, form = FORMS[self.read]
        counts = (2,) if self.read is pair else (1, 2, 3)
        if not (_are_sizes(value, counts) if kind is tuple else type(value) is kind):
            raise ScheduleError(f"{self.name}={value!r} is no value of {self.name}", hint=f"write {form}")
        if self.choices and value not in self.choices:
            if isinstance(value, str):
                unknown({"mma": "mma shape"}.get(self.name, self.name), value, self.choices)
            raise ScheduleError(
                f"{self.name}={value}: there is no such choice",
                hint=f"choose among: {', '.join(map(str, self.choices))}",
            )
        if self.high is not None and not self.low <= value <= self.high:
            raise ScheduleError(
                f"{self.name}={value} is out of range", hint=f"{self.name} goes from {self.low} to {self.high}"
            )
        if self.read is integer and value < self.low:
            raise ScheduleError(f"{self.name}={value} is empty", hint=f"write a number from 1 up, or {self.name}=auto")

    def shown(self, value: Any) -> str | None:
        """``name=value``; None for what is left to the cost model."""
        if value is None:
            return f"{self.name}=auto" if self.auto else None
        if isinstance(value, bool):
            return f"{self.name}={'on' if value else 'off'}"
        return f"{self.name}={'x'.join(map(str, value)) if isinstance(value, tuple) else value}"


class Vocabulary:
    """What a family of schedules says of its lines: the operation it is for, its name, its words."""

    op: str
    name: str
    words: tuple[Word, ...]
    #: Whether its kernels are those of the arrays' own library, of which we have no program.
    library: bool = False
    #: What its predicted times count beside those of other families: more than 1 where its formula is the looser one,
    #: as the cheapest of several estimates is more often one that is too low.
    doubt: float = 1.0
    #: Words that make another kernel, so that another value of theirs is news on the page of a kernel.
    telling: ClassVar[tuple[str, ...]] = ()

    def consistent(self, s: Schedule) -> None:
        """ScheduleError where words contradict each other."""

    def has(self, name: str) -> bool:
        """Whether lines of the family have the word."""
        return name in self.by_name

    @cached_property
    def by_name(self) -> Mapping[str, Word]:
        """Its words by their names, in the order of the line."""
        return {word.name: word for word in self.words}

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """What a plain line has."""
        return {word.name: word.default for word in self.words}


# ------------------------------------------------------------------------------------------------ schedules
class Schedule:
    """A family and the values of its words, as attributes.  Immutable; equal if their lines are.

    ``Schedule("tiled", fuse=2, tile=(32, 64))``: words that are left out have the family's defaults; values without a
    name are taken in the order of the line.  ScheduleError for what is unknown, out of range or contradictory.
    """

    #: The operation whose families are looked up.
    op: ClassVar[str] = "stencil"
    family: str
    #: What a line without these words has; what the other words of any family hold.
    fuse: int = 1
    levels: int = 1
    stages: int = 1
    slices: int = 1
    tile: Any = None
    mma: str = "none"
    transform: str = "implicit"
    cols: int
    lines: int
    strips: int
    products: int

    def __init__(self, family: str = "", *values: Any, **words: Any) -> None:
        known = families(self.op)
        if not isinstance(family, str):
            raise ScheduleError(f"{family!r} is no family of schedules", hint=f"one of: {', '.join(known)}")
        if not family:
            family = next(iter(known))
        if family not in known:
            _no_family(self.op, family)
        own = known[family]
        if len(values) > len(own.words):
            raise ScheduleError(
                f"{len(values)} values for a {family} schedule", hint=f"in order: {', '.join(own.by_name)}"
            )
        given = {**dict(zip(own.by_name, values, strict=False)), **words}
        for name in given.keys() - own.by_name.keys():
            _means_nothing(f"{name}={given[name]}", name, own, self.op)
        attributes = self.__dict__
        attributes["family"], attributes["rules"] = family, own
        values_of = {**own.defaults, **given}
        for name, value in given.items():
            if value is None:
                values_of[name] = own.defaults[name]
            else:
                own.by_name[name].check(value)
        attributes.update(values_of)
        attributes["_key"] = (self.op, family, *values_of.values())
        own.consistent(self)

    def __getattr__(self, name: str) -> Any:  # a word that the family does not have
        raise AttributeError(f"a {self.__dict__.get('family')} schedule has no {name}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a schedule does not change: use schedule.but({name}=...)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self.__dict__["_key"] == other.__dict__["_key"]

    def __hash__(self) -> int:
        return hash(self.__dict__["_key"])

    def __reduce__(self) -> Any:
        return partial(type(self), self.family, **self.values), ()

    def __str__(self) -> str:
        shown = (word.shown(getattr(self, word.name)) for word in self.rules.words)
        return " ".join([self.family, *filter(None, shown)])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def _repr_html_(self) -> str:
        return facts(str(self), ((name, "auto" if value is None else value) for name, value in self.values.items()))

    def but(self: S, **words: Any) -> S:
        """The same schedule with other values of some words."""
        return type(self)(self.family, **{**self.values, **words})

    @property
    def values(self) -> dict[str, Any]:
        """Every word's value, in the order of the line."""
        return {word.name: getattr(self, word.name) for word in self.rules.words}

    @property
    def given(self) -> Mapping[str, Any]:
        """The words that are not left to the cost model."""
        return {name: value for name, value in self.values.items() if value is not None}

    @property
    def complete(self) -> bool:
        """Whether nothing is left to the cost model."""
        return all(self.values[word.name] is not None or word.auto for word in self.rules.words)

    @property
    def steps(self) -> int:
        """Time steps of one pass."""
        return self.fuse * self.levels

    @property
    def levelled(self) -> bool:
        """Whether levels of ``fuse`` steps each follow one another in a pass."""
        return bool(self.rules.has("levels"))

    @property
    def widens(self) -> bool:
        """Whether a NaN or Inf may reach a cell that the stencil's own weights do not connect it to.

        Products of matrices multiply whole rows of the window, zeros included, and 0 · NaN is NaN; all other families
        multiply by the non-zero weights only.
        """
        return bool(self.rules.has("mma"))

    @property
    def threads(self) -> int:
        """Threads of a block."""
        if self.rules.has("block"):
            return int(math.prod(self.block))
        return 32 * int(math.prod(self.warps) if isinstance(self.warps, tuple) else self.warps) * (self.slices or 1)

    @classmethod
    def parse(cls: type[S], line: str) -> S:
        """The schedule that a line such as ``stencil2row mma=f64.m8n8k4 fuse=3 tile=32x64 stages=2`` describes.

        Words left out take the family's defaults.  Anything unknown, repeated or contradictory is a ScheduleError.
        ``Schedule`` itself reads the line of any operation, stencils first.
        """
        if not isinstance(line, str):
            raise ScheduleError(f"{line!r} is no line of a schedule", hint="pass a string, such as 'tiled fuse=2'")
        parts = line.split()
        if cls is Schedule:  # a line of any operation
            return cast("S", read(line, KINDS))
        known = families(cls.op)
        if not parts:
            raise ScheduleError("an empty schedule", hint=f"start with a family: {', '.join(known)}")
        if parts[0] not in known:
            _no_family(cls.op, parts[0])
        own, given = known[parts[0]], dict[str, Any]()
        for part in parts[1:]:
            key, eq, value = part.partition("=")
            if key not in own.by_name:
                _means_nothing(repr(part), key, own, cls.op)
            if not eq or not value:
                raise ScheduleError(f"{part!r} has no value", hint=f"write {key}=…, for example in {cls(own.name)}")
            if key in given:
                raise ScheduleError(f"{part!r}: {key} is given twice", hint="keep one of them")
            word = own.by_name[key]
            given[key] = word.default if value == "auto" else word.read(part, value)
        return cls(own.name, **given)


class StencilSchedule(Schedule):
    """How a stencil becomes a kernel."""


class UpdateSchedule(Schedule):
    """How a general update becomes a kernel."""

    op: ClassVar[str] = "update"


class SpmmSchedule(Schedule):
    """How a sparse product becomes a kernel; what a line leaves out is left to the cost model."""

    op: ClassVar[str] = "spmm"


class SddmmSchedule(Schedule):
    """How a sampled product becomes a kernel; what a line leaves out is left to the cost model."""

    op: ClassVar[str] = "sddmm"


class AttentionSchedule(Schedule):
    """How sparse attention becomes kernels; what a line leaves out is left to the cost model."""

    op: ClassVar[str] = "attention"


def read(line: str, kinds: Sequence[type[Schedule]]) -> Schedule:
    """The schedule of a line: of the first of ``kinds`` that has its family, else an error of the first one."""
    known = (kind for kind in kinds if line.split()[:1] and line.split()[0] in families(kind.op))
    return next(known, kinds[0]).parse(line)


#: The schedules of each operation.
KINDS: tuple[type[Schedule], ...] = (StencilSchedule, UpdateSchedule, SpmmSchedule, SddmmSchedule, AttentionSchedule)


def _no_family(op: str, name: str) -> NoReturn:
    """The error for a family that the operation does not have; a line of another operation is named as such."""
    kind, example = OPERATIONS.get(op, (op, ""))
    others = [OPERATIONS.get(other, (other, ""))[0] for other in operations() if name in families(other)]
    if others:
        raise ScheduleError(
            f"{name!r} begins a line for {' and '.join(others)}, it is no schedule of {kind}",
            hint=f"{kind} take: {', '.join(families(op))}; as in {example}{_WHY.get(op, '')}",
        )
    unknown("schedule", name, families(op))


def _means_nothing(word: str, name: str, own: Vocabulary, op: str) -> NoReturn:
    """The error for a word that a family does not have."""
    everywhere = {n for family in families(op).values() for n in family.by_name}
    words = ", ".join(own.by_name) or "no words"
    if name in everywhere:
        raise ScheduleError(f"{word} means nothing to a {own.name} schedule", hint=f"drop it, or choose among: {words}")
    known = [f"{n}=…" for n in own.by_name]
    raise ScheduleError(
        f"unknown word in schedule {word}: it means nothing to a {own.name} schedule",
        hint=f"{nearest(word, known)}there are: {', '.join(known) or 'no words'}",
    )
