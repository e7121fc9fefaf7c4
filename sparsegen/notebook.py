"""HTML of values, which notebooks show instead of their ``repr``: tables, pictures, code in colours."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from html import escape
from typing import Any, Final

#: Names that ``pygments`` has for the languages of code.
LANGUAGES: Final = {"cuda": "cuda", "ptx": "gas", "sass": "gas", "sgir": "text"}


class Code(str):
    """Code as text, which a notebook shows in colours where ``pygments`` is installed (the extra ``rich`` brings it).

    ``language``: one of LANGUAGES.
    """

    __slots__ = ("language",)

    language: str

    def __new__(cls, text: str, language: str) -> Code:
        """The text, and what it is written in."""
        made = super().__new__(cls, text)
        made.language = language
        return made

    def __getnewargs__(self) -> Any:
        return str(self), self.language

    def _repr_html_(self) -> str:
        with suppress(ImportError):
            from pygments import highlight
            from pygments.formatters import HtmlFormatter
            from pygments.lexers import get_lexer_by_name

            shown: str = highlight(self, get_lexer_by_name(LANGUAGES[self.language]), HtmlFormatter(noclasses=True))
            return shown
        return f"<pre>{escape(self)}</pre>"


def facts(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Names and what they are, under a title."""
    return block(title, table((), [(name, str(value)) for name, value in rows]))


def block(title: str, *parts: str) -> str:
    """Parts, which are HTML, below one another under a title."""
    return f"<div><p><b>{escape(title)}</b></p>{''.join(parts)}</div>"


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Iterable[int] = (), bold: Iterable[int] = ()
) -> str:
    """Rows of cells under their heads, if there are any; ``right``: columns aligned so, ``bold``: rows that stand out.

    A row of one cell goes over all columns; columns that are empty are left out.
    """
    width, to_right, strong = max(map(len, rows), default=0), set(right), set(bold)
    kept = [at for at in range(width) if any(len(row) > max(at, 1) and row[at].strip() for row in rows)] or [0]

    def line(tag: str, cells: Sequence[str], style: str = "") -> str:
        shown = ""
        for at in kept:
            if at < len(cells):
                side = "right" if at in to_right else "left"
                shown += f'<{tag} style="text-align:{side}{style}">{escape(cells[at].strip())}</{tag}>'
        return f"<tr>{shown}</tr>"

    lines = [line("th", heads)] if any(heads) else []
    for number, row in enumerate(rows):
        if len(row) == 1:
            lines.append(f'<tr><td colspan="{len(kept)}" style="text-align:left">{escape(row[0])}</td></tr>')
        else:
            lines.append(line("td", row, ";font-weight:bold" if number in strong else ""))
    return f"<table>{''.join(lines)}</table>"


def image(svg: str, told: str) -> str:
    """An SVG picture as an image, so that its styles stay its own; ``told``: what is in it."""
    return f'<img alt="{escape(told)}" src="data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"/>'
