"""What ``k.explain()`` gives back: the text of a page, which is a string, and the same page in other forms."""

from __future__ import annotations

import json
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from sparsegen import notebook
from sparsegen.arguments import positive
from sparsegen.explain.page import Page
from sparsegen.explain.picture import svg
from sparsegen.explain.roofline import Dot
from sparsegen.explain.sections import sections
from sparsegen.explain.text import text
from sparsegen.files import write_as
from sparsegen.ir.errors import ArrayError


class Explanation(str):
    """A page as text; ``print`` shows it, ``rich.print`` in colours.

    ``page``: the numbers behind it.  ``dots``: every schedule that was ranked, for the picture.
    """

    __slots__ = ("dots", "page")

    page: Page
    dots: tuple[Dot, ...]

    def __new__(cls, page: Page, dots: tuple[Dot, ...]) -> Explanation:
        """The explanation whose text is that of ``page``."""
        made = super().__new__(cls, text(page))
        made.page, made.dots = page, dots
        return made

    def __getnewargs__(self) -> Any:
        return self.page, self.dots

    @property
    def data(self) -> dict[str, Any]:
        """The page as plain dictionaries, lists, strings and numbers; ``data["version"]`` says which form it has."""
        found: dict[str, Any] = plain(asdict(self.page))
        return found

    def json(self, indent: int | None = 2) -> str:
        """``data`` as JSON, with so many spaces (0 to 16) a level; None: in one line.  ArrayError for others."""
        if indent is not None and (indent := positive(indent, "indent", ArrayError, least=0)) > 16:
            raise ArrayError(f"indent={indent} is wide", hint="indent by at most 16 spaces")
        return json.dumps(self.data, indent=indent, ensure_ascii=False, allow_nan=False)

    def roofline(self) -> str:
        """An SVG picture: the device's limits, and every schedule that was ranked."""
        return svg(self.page, self.dots)

    def save(self, path: str | Path) -> Path:
        """Write the text (.txt), the JSON (.json) or the roofline (.svg); ArrayError for another suffix."""
        forms = {".txt": lambda: f"{self}\n", ".json": lambda: f"{self.json()}\n", ".svg": self.roofline}
        return write_as(path, forms, "an explanation", ArrayError)

    def _repr_html_(self) -> str:
        parts = []
        for section in sections(self.page):
            marked = [at for at, row in enumerate(section.rows) if row.style in ("chosen", "binds")]
            heads = section.heads if section.title else ()
            title = f"<p>{escape(section.title)}</p>" if section.title else ""
            parts.append(title + notebook.table(heads, [row.cells for row in section.rows], section.right, marked))
        told = "the device's limits, and every schedule that was ranked"
        return notebook.block(self.page.about, *parts, notebook.image(self.roofline(), told))

    def __rich__(self) -> Any:
        from sparsegen.explain.richly import render

        return render(self.page)


def plain(value: Any) -> Any:
    """Tuples as lists, infinite numbers as None, so that JSON gives the same value back."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return None
    return value
