"""What is not ours in the printed text: names of the user's values and files, which never become code of their own."""

from __future__ import annotations

import re

from sparsegen.ir.errors import IRError
from sparsegen.ir.symbols import reserved


def comment(text: str) -> str:
    """Text that is safe behind ``//``: one line of visible characters that does not end in a continuation."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text).rstrip()
    return f"{shown} ." if shown.endswith(("\\", "??/")) else shown


class Names:
    """C names for IR names: valid, distinct, none that C++, CUDA or the generated code has already.

    Values are kept under ``%name``, buffers under ``@name``: they may be called the same in the IR, not in C.
    ``taken``: further names that they must not have.
    """

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._ident: dict[str, str] = {}
        self._taken = set(taken)
        self._text: dict[str, str] = {}

    def declare(self, key: str, text: str | None = None) -> str:
        """The identifier under which a value or buffer is declared, or ``text`` as what its uses read instead."""
        if key not in self._ident:
            name = re.sub(r"\W", "_", key[1:], flags=re.ASCII)
            if not name or name[0].isdigit() or name.startswith("_"):
                name = f"v{name}"
            if reserved(name):  # nothing of C++ or CUDA ends in _
                name += "_"
            while name in self._taken:
                name += "_"
            self._ident[key] = name
            self._taken.add(name)
        self._text[key] = self._ident[key] if text is None else text
        return self._ident[key]

    def value(self, name: str) -> str:
        """What a use of the value reads."""
        return self._lookup(f"%{name}")

    def buffer(self, name: str) -> str:
        """What a use of the buffer reads."""
        return self._lookup(f"@{name}")

    def _lookup(self, key: str) -> str:
        if key not in self._text:
            raise IRError(f"{key} is used before it is defined")
        return self._text[key]
