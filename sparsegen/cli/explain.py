"""``sparsegen explain``: the page of each stencil and product on each device, side by side first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparsegen.cli.common import OK, Args
from sparsegen.cli.files import kernel, save, stencils
from sparsegen.ir.errors import ArrayError, ScheduleError

if TYPE_CHECKING:
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.dsl.update import Update
    from sparsegen.explain.explanation import Explanation
    from sparsegen.products.product import Product

_RULE = "-" * 100


def explain(args: Args) -> int:
    """Explain what a file defines, for one device or several."""
    if args.picture and not args.picture.endswith(".svg"):
        raise ArrayError(f"cannot draw {args.picture}", hint="name a file that ends with .svg for --picture")
    pages = {
        name: [_page(args, what, device) for device in args.device or ["auto"]]
        for name, what in stencils(args.file).items()
    }
    if args.json:
        _json(args.file, pages)
    else:
        _show(pages)
    if args.picture:
        from sparsegen.explain.picture import together

        every = [(page.page, page.dots) for found in pages.values() for page in found]
        save(args.picture, together(every).encode())
    return OK


def _page(args: Args, what: Stencil | Update | Product, device: str) -> Explanation:
    """One page; of a product on a device that no sparse schedule runs on, that of the dense product."""
    try:
        return kernel(args, what, backend="auto", edge=10240, device=device).explain()
    except ScheduleError:
        if what.ndim or args.schedule != "auto":
            raise
        dense = argparse.Namespace(**{**vars(args), "schedule": "dense"})
        return kernel(dense, what, backend="auto", edge=10240, device=device).explain()


def _json(file: str, pages: dict[str, list[Explanation]]) -> None:
    import json

    from sparsegen.explain.page import VERSION

    document = {
        "version": VERSION,
        "file": file,
        "pages": [{"defined_as": name, **page.data} for name, found in pages.items() for page in found],
    }
    print(json.dumps(document, indent=2, ensure_ascii=False))


def _show(pages: dict[str, list[Explanation]]) -> None:
    from sparsegen.explain.beside import beside, overview

    blocks: list[object] = []
    for found in pages.values():
        if len(found) > 1:
            blocks.append(beside([page.page for page in found]))
        blocks += found
    if len(pages) > 1:
        blocks.append(overview([page.page for found in pages.values() for page in found]))
    show = _printer()
    for at, block in enumerate(blocks):
        if at:
            print(f"\n{_RULE}\n")
        show(block)


def _printer() -> Callable[[object], None]:
    """In colours on a terminal, where ``rich`` is installed."""
    if sys.stdout.isatty():
        try:
            from rich.console import Console
        except ImportError:
            return print
        console: Any = Console()
        return lambda block: console.print(block)
    return print
