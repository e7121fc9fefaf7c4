"""Splits ``.sgir`` text into tokens and points at them in diagnostics; :mod:`sparsegen.ir.parse` builds on it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import linecache
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from .errors import IRError, Loc

R = TypeVar("R")
_TOKEN: Final = re.compile(
    r"""(?P<skip>[ \t\r\n]+|\#[^\n]*)
    |(?P<float>\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)
    |(?P<int>\d+)
    |(?P<str>"(?:[^"\\\n]|\\.)*")
    |(?P<value>%[A-Za-z_][\w.]*)
    |(?P<buffer>@[A-Za-z_][\w.]*)
    |(?P<name>[A-Za-z_]\w*(?:\.\w+)*)
    |(?P<punct>->|//|<<|>>|<=|==|!=|[-+*%&|^<>=,:()\[\]{}])""",
    re.VERBOSE,
)


@dataclasses.dataclass(frozen=True)
class Token:
    kind: str
    text: str
    at: int


class Lexer:
    """One text as tokens, with a position: what a recursive-descent parser is made of."""

    def __init__(self, text: str, file: str | None = None) -> None:
        if file is None:  # make the text quotable in diagnostics
            file = f"<sgir {hashlib.sha256(text.encode()).hexdigest()[:8]}>"
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        self.text, self.file = text, file
        self.tokens = list(self._scan())
        self.i = 0

    # -------------------------------------------------------------------------------------------- tokens
    def _scan(self) -> Iterator[Token]:
        at = 0
        while at < len(self.text):
            m = _TOKEN.match(self.text, at)
            if m is None:
                raise self.error(f"cannot read {self.text[at]!r} here", at)
            if m.lastgroup != "skip":
                yield Token(m.lastgroup or "", m[0], at)
            at = m.end()
        yield Token("end", "end of text", at)

    def loc(self, at: int) -> Loc:
        """The line and column of a position in the text."""
        return Loc(self.file, self.text.count("\n", 0, at) + 1, at - (self.text.rfind("\n", 0, at) + 1))

    def error(self, message: str, at: int | None = None, hint: str | None = None) -> IRError:
        """A diagnostic with a caret at the position (at the next token if not given)."""
        return IRError(message, loc=self.loc(self.tokens[self.i].at if at is None else at), hint=hint)

    @property
    def now(self) -> Token:
        return self.tokens[self.i]

    def peek(self, text: str) -> bool:
        return self.now.kind in ("punct", "name") and self.now.text == text

    def accept(self, text: str) -> bool:
        if self.peek(text):
            self.i += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}, found {self.found()}")

    def take(self, kind: str, what: str) -> str:
        if self.now.kind != kind:
            raise self.error(f"expected {what}, found {self.found()}")
        self.i += 1
        return self.tokens[self.i - 1].text

    def found(self) -> str:
        return self.now.text if self.now.kind == "end" else repr(self.now.text)

    def integer(self, what: str = "an integer") -> int:
        sign = -1 if self.accept("-") else 1
        return sign * int(self.take("int", what))

    def string(self, what: str = "a string in double quotes") -> str:
        at = self.now.at
        quoted = self.take("str", what)
        try:
            return str(json.loads(quoted))
        except ValueError:
            raise self.error(f"cannot read the string {quoted}", at) from None

    def many(self, close: str, item: Callable[[], R]) -> tuple[R, ...]:
        """Items up to ``close``, separated by commas; one more comma at the end is allowed."""
        out = []
        while not self.accept(close):
            out.append(item())
            if not self.accept(",") and not self.peek(close):
                raise self.error(f"expected ',' or {close!r}, found {self.found()}")
        return tuple(out)
