"""Runs passes in order: verifies, times and dumps; ``-p "tile{m=64},pipeline{stages=3}"`` as values and back."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from ..errors import IRError
from ..module import Module
from ..text import print_module
from ..verify import verify


class Pass(Protocol):
    """A pass: a frozen dataclass whose fields are its options."""

    def run(self, module: Module) -> Module:
        """The module after the pass."""
        ...


PASSES: dict[str, type[Any]] = {}
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


def name_of(p: Pass) -> str:
    """The pass's registered name; that of its class, in lower case, if it has none."""
    return next((n for n, cls in PASSES.items() if type(p) is cls), type(p).__name__.lower())


def print_pass(p: Pass) -> str:
    """``tile{m=64}``: the name and the options that differ from their defaults."""
    given = [f"{f.name}={_print(getattr(p, f.name))}" for f in _options_of(type(p))
             if f.default is dataclasses.MISSING or getattr(p, f.name) != f.default]  # fmt: skip
    return f"{name_of(p)}{{{','.join(given)}}}" if given else name_of(p)


def _options_of(cls: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls)


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
    known = {f.name: f for f in _options_of(cls)}
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
        value, default = _parse(m[2]), known[m[1]].default
        if default is not dataclasses.MISSING and default is not None and value is not None:
            if isinstance(default, float) and type(value) is int:
                value = float(value)
            if type(value) is not type(default):
                raise IRError(f"pass {name}: option {m[1]}={m[2]} must be a {type(default).__name__}")
        out[m[1]] = value
        at = m.end()
    return out


def parse_pipeline(text: str) -> tuple[Pass, ...]:
    """The passes that a pipeline's text names, with their options."""
    out: list[Pass] = []
    at = 0
    while at < len(text):
        m = _PASS.match(text, at)
        if m is None or (m.end() < len(text) and text[m.end()] != ",") or m.end() + 1 == len(text):
            raise IRError(f"cannot read the pipeline at {text[at:]!r}",
                          hint='write it as "tile{m=64},pipeline{stages=3}"')  # fmt: skip
        if (cls := PASSES.get(m[1])) is None:
            raise IRError(f"unknown pass {m[1]!r}", hint=f"one of {', '.join(sorted(PASSES))}")
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
    """Runs passes.  ``verify_each`` checks before the first and after each (tests), else only the end is checked.

    ``dump`` (default: the environment's ``SPARSEGEN_DUMP``) is a folder for ``03-pipeline.sgir`` and, where a pass has
    changed something, ``03-pipeline.diff``.  ``seconds`` holds the time of each pass of the last run.
    """

    passes: tuple[Pass, ...]
    verify_each: bool = False
    shared_limit: int | None = None
    dump: Path | None = field(default_factory=lambda: Path(d) if (d := os.environ.get("SPARSEGEN_DUMP")) else None)
    seconds: list[tuple[str, float]] = field(default_factory=list)

    def run(self, module: Module) -> Module:
        """The module after all passes; a failing pass or check names the pass."""
        self.seconds = []
        before = self._dump(0, "input", module, None)
        if self.verify_each:
            self._verify(module, "before the first pass")
        for i, p in enumerate(self.passes, 1):
            start = time.perf_counter()
            module = p.run(module)
            self.seconds.append((name_of(p), time.perf_counter() - start))
            before = self._dump(i, name_of(p), module, before)
            if self.verify_each:
                self._verify(module, f"after pass {i}, {print_pass(p)}")
        if not self.verify_each:
            self._verify(module, f"after {print_pipeline(self.passes) or 'no pass'}")
        return module

    def report(self) -> str:
        """Milliseconds of each pass of the last run."""
        return "\n".join(f"{s * 1e3:8.2f} ms  {name}" for name, s in self.seconds)

    def _verify(self, module: Module, when: str) -> None:
        try:
            verify(module, shared_limit=self.shared_limit)
        except IRError as e:
            raise IRError(f"{e.message}\n  {when}", loc=e.loc, hint=e.hint) from e

    def _dump(self, i: int, name: str, module: Module, before: str | None) -> str | None:
        if self.dump is None:
            return None
        folder = self.dump / re.sub(r"\W+", "_", module.name)
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{i:02d}-{name}"
        text = print_module(module)
        (folder / f"{stem}.sgir").write_text(text, encoding="utf-8")
        (folder / f"{stem}.diff").unlink(missing_ok=True)
        if before is not None and before != text:
            lines = difflib.unified_diff(before.splitlines(True), text.splitlines(True), f"{i - 1:02d}", stem)
            (folder / f"{stem}.diff").write_text("".join(lines), encoding="utf-8")
        return text
