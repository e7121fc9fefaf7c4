"""Runs passes in order: verifies and dumps; ``-p "tile{m=64},pipeline{stages=3}"`` as values and back."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar

from ..errors import IRError, SparsegenError
from ..module import Module
from ..registry import load_all
from ..text import print_module
from ..verify import verify


class Pass(Protocol):
    """A pass: a frozen dataclass whose fields are its options."""

    def run(self, module: Module) -> Module:
        """The module after the pass."""
        ...


PASSES: dict[str, type[Any]] = {}
_REMEDY: Final = "look at the program before and after (set SPARSEGEN_DUMP to a folder), then at the pass's options"
P = TypeVar("P", bound=type[Any])
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "none": None}
_NUMBER: Final = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?|-?inf|nan")
_PASS: Final = re.compile(r'\s*([A-Za-z_][\w.-]*)\s*(\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\})?\s*')
_OPTION: Final = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*("(?:[^"\\]|\\.)*"|[^,{}"]*?)\s*(?:,|$)')


def register(name: str) -> Callable[[P], P]:
    """Class decorator, above ``@dataclass(frozen=True)``: pipelines call the pass by this name."""

    def add(cls: P) -> P:
        PASSES[name] = cls
        return cls

    return add


def choice(default: str, *others: str) -> Any:
    """The field of a pass for an option that is one of these words."""
    return field(default=default, metadata={"one_of": (default, *others)})


def pass_names() -> list[str]:
    """The names of all passes."""
    load_all()
    return sorted(PASSES)


def name_of(p: Pass) -> str:
    """The pass's registered name; that of its class, in lower case, if it has none."""
    return next((n for n, cls in PASSES.items() if type(p) is cls), type(p).__name__.lower())


def print_pass(p: Pass) -> str:
    """``tile{m=64}``: the name and the options that differ from their defaults."""
    cls: Any = type(p)
    given = [f"{f.name}={_print(getattr(p, f.name))}" for f in dataclasses.fields(cls)
             if f.default is dataclasses.MISSING or getattr(p, f.name) != f.default]  # fmt: skip
    return f"{name_of(p)}{{{','.join(given)}}}" if given else name_of(p)


def _print(v: Any) -> str:
    if v is None or isinstance(v, bool):
        return {None: "none", True: "true", False: "false"}[v]
    if isinstance(v, (int, float)):
        return repr(v)
    text = str(v)
    plain = re.fullmatch(r"[A-Za-z_][\w.:-]*", text) and text not in _WORDS and not _NUMBER.fullmatch(text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def _parse(text: str) -> Any:
    if text.startswith('"'):
        return json.loads(text)
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    return text


def _options(name: str, cls: type[Any], text: str) -> dict[str, Any]:
    known = {f.name: f for f in dataclasses.fields(cls)}
    out: dict[str, Any] = {}
    at = 0
    while at < len(text.rstrip()):
        m = _OPTION.match(text, at)
        if m is None or not m[2]:
            raise IRError(f"pass {name}: cannot read the options {text[at:]!r}", hint='write them as {m=64,mode="a b"}')
        if m[1] not in known:
            raise IRError(f"pass {name} has no option {m[1]!r}", hint=f"its options: {', '.join(known) or 'none'}")
        if m[1] in out:
            raise IRError(f"pass {name}: option {m[1]!r} is given twice")
        out[m[1]] = _option(f"pass {name}: option {m[1]}={m[2]}", _parse(m[2]), known[m[1]])
        at = m.end()
    return out


def _option(said: str, value: Any, known: dataclasses.Field[Any]) -> Any:
    """An option's value: of its default's type, one of its choices if it has any, and no count below 0 (or below 1,
    where the default is not 0)."""
    default = known.default
    if default is dataclasses.MISSING or default is None:
        return value
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if value is None and isinstance(default, str):  # the word, not the absence of one
        value = "none"
    if type(value) is not type(default):
        raise IRError(f"{said} must be a {type(default).__name__}", hint=f"its default is {_print(default)}")
    if type(value) is int and value < (least := min(1, int(default))):
        raise IRError(f"{said} must be at least {least}", hint=f"its default is {_print(default)}")
    if (choices := known.metadata.get("one_of")) and value not in choices:
        raise IRError(f"{said} must be one of its choices", hint=f"one of {', '.join(choices)}")
    return value


def parse_pipeline(text: str) -> tuple[Pass, ...]:
    """The passes that a pipeline's text names, with their options."""
    load_all()
    out: list[Pass] = []
    at = 0
    while at < len(text):
        m = _PASS.match(text, at)
        if m is None or (m.end() < len(text) and text[m.end()] != ",") or m.end() + 1 == len(text):
            raise IRError(f"cannot read the pipeline at {text[at:]!r}",
                          hint='write it as "tile{m=64},pipeline{stages=3}"')  # fmt: skip
        if (cls := PASSES.get(m[1])) is None:
            raise IRError(f"unknown pass {m[1]!r}", hint=f"one of {', '.join(pass_names())}")
        try:
            out.append(cls(**_options(m[1], cls, (m[2] or "{}")[1:-1])))
        except TypeError as e:
            raise IRError(f"pass {m[1]}: {e}") from None
        at = m.end() + 1
    return tuple(out)


def print_pipeline(passes: Sequence[Pass]) -> str:
    """The text that :func:`parse_pipeline` reads."""
    return ",".join(map(print_pass, passes))


@dataclass
class Manager:
    """Runs the passes of one lowering.

    ``verify_each`` checks before the first pass and after each (tests), else the last module of each level is checked.
    ``dump`` (default: the environment's ``SPARSEGEN_DUMP``) is a folder: a run makes a folder of the module's name in
    it (``heat2d``, the process's next one of that name ``heat2d-2``) with ``03-pipeline.sgir`` after the third pass
    and, where that has changed something, ``03-pipeline.diff``.  After a run, ``levels`` holds the last module of each
    level (``op``, ``tile``, ``warp``).
    """

    passes: tuple[Pass, ...]
    verify_each: bool = False
    shared_limit: int | None = None
    dump: Path | None = field(default_factory=lambda: Path(d) if (d := os.environ.get("SPARSEGEN_DUMP")) else None)
    levels: dict[str, Module] = field(default_factory=dict)

    def run(self, module: Module) -> Module:
        """The module after all passes; a failing pass or check names the pass."""
        self.levels = {level_of(module): module}
        dump = Dump(self.dump, module) if self.dump else None
        if self.verify_each:
            self._verify(module, "before the first pass")
        for i, p in enumerate(self.passes, 1):
            before, module = module, self._apply(p, module)
            if dump:
                dump.add(name_of(p), module)
            if self.verify_each:
                self._verify(module, f"after pass {i}, {print_pass(p)}")
            elif level_of(module) != level_of(before):
                self._verify(before, f"before pass {i}, {print_pass(p)}")
            self.levels[level_of(module)] = module
        if not self.verify_each:
            self._verify(module, f"after {print_pipeline(self.passes) or 'no pass'}")
        return module

    def _apply(self, p: Pass, module: Module) -> Module:
        """The module after a pass; what a program makes go wrong inside a pass is an error that names the pass."""
        try:
            return p.run(module)
        except SparsegenError:
            raise
        except Exception as e:
            raise IRError(f"pass {print_pass(p)} fails on module {module.name!r}: {type(e).__name__}: {e}",
                          hint="the verifier lets this program through, so it misses a rule or the pass a case; "
                          "the exception that this one comes from shows the line of the pass") from e  # fmt: skip

    def _verify(self, module: Module, when: str) -> None:
        try:
            verify(module, shared_limit=self.shared_limit)
        except IRError as e:
            raise IRError(f"{e.message}\n  {when}", loc=e.loc, hint=e.hint or _REMEDY) from e


def level_of(module: Module) -> str:
    """The level of a module's first function, that of its kernel: ``op``, ``tile`` or ``warp``."""
    return module.funcs[0].name.partition(".")[0] if module.funcs else ""


class Dump:
    """The folder of one lowering: its input and what each pass makes of it, numbered in the order of the passes."""

    _made: ClassVar[Counter[Path]] = Counter()

    def __init__(self, root: Path, module: Module) -> None:
        named = root / re.sub(r"\W+", "_", module.name)
        Dump._made[named] += 1
        count = Dump._made[named]
        self.folder = named if count == 1 else named.with_name(f"{named.name}-{count}")
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            for old in self.folder.glob("[0-9][0-9]-*"):  # of an earlier process
                old.unlink()
        self.count, self.stem, self.text = 0, "", ""
        self.add("input", module)

    def add(self, name: str, module: Module) -> None:
        """Writes the module, and how it differs from the one before."""
        before, text = (self.stem, self.text), print_module(module)
        self.stem, self.text = f"{self.count:02d}-{name}", text
        with self._writing():
            (self.folder / f"{self.stem}.sgir").write_text(text, encoding="utf-8")
            if self.count and before[1] != text:
                lines = difflib.unified_diff(before[1].splitlines(True), text.splitlines(True), before[0], self.stem)
                (self.folder / f"{self.stem}.diff").write_text("".join(lines), encoding="utf-8")
        self.count += 1

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise IRError(f"cannot write programs to {self.folder}: {e.strerror}",
                          hint="set SPARSEGEN_DUMP to a folder that may be written to") from e  # fmt: skip
