"""Formulas count by themselves: they import neither the emulator nor the warp level, nor any pass."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import sparsegen.cost.counts

PACKAGE = Path(sparsegen.cost.counts.__file__).parent
FILES = [*sorted(PACKAGE.glob("*.py")), PACKAGE.parents[1] / "updates" / "counts.py"]


def modules(path: Path) -> list[str]:
    """What a file imports, relative names included, as ``package.name``."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module or ''}.{a.name}" for a in node.names]
    return found


def test_no_file_imports_what_it_is_compared_with() -> None:
    assert len(FILES) > 5
    for path in FILES:
        for name in modules(path):
            assert not any(part in name for part in ("backends", "ir.warp", "ir.lower", "ir.passes")), (path, name)


def test_importing_them_does_not_import_the_emulator() -> None:
    names = [f"sparsegen.cost.counts.{p.stem}" for p in FILES[:-1] if p.stem != "__init__"] + [
        "sparsegen.updates.counts"
    ]
    code = (
        f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\n"
        "found = [m for m in sys.modules if m.startswith(('sparsegen.backends', 'sparsegen.ir.lower'))]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parents[2])
