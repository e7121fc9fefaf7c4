"""The parts depend on one another one way, files stay short, and generic passes name no paper."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parent.parent
PARTS = {"ir": "sparsegen.ir", "backends": "sparsegen.backends", "sparsegen": "sparsegen"}
FILES = sorted(file for part in PARTS for file in (ROOT / part).rglob("*.py"))
MAX_LINES = 450
WARN_LINES = 400
#: What all parts may import.
SHARED = ("sparsegen._version", "sparsegen.files")
GPU_LIBRARIES = ("pycuda", "cuda", "cupy", "torch")
PAPERS = re.compile(r"conv_?stencil|spinfer|magicube|flash_?llm|tc_?stencil|lora_?stencil|sparta|drstencil", re.I)


def name_of(file: Path) -> str:
    """The name that a file is imported under."""
    part, *rest = file.relative_to(ROOT).with_suffix("").parts
    return ".".join([PARTS[part], *(word for word in rest if word != "__init__")])


def imports(tree: ast.AST, module: str, *, package: bool) -> Iterator[tuple[int, str]]:
    """Line and full name of all that a module imports, inside functions and ``if TYPE_CHECKING`` too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                words = module.split(".")
                words = words[: len(words) - node.level + package]
                base = ".".join([*words, *filter(None, [base])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def within(name: str, *packages: str) -> bool:
    """Whether ``name`` is one of the packages or lies in one."""
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def fault(module: str, target: str) -> str | None:
    """Why ``module`` must not import ``target``; None if it may."""
    ours = within(target, "sparsegen") and not within(target, *SHARED)
    if within(module, "sparsegen.ir"):
        if ours and not within(target, "sparsegen.ir"):
            return "ir imports neither the front end nor a back end"
        if within(target, *GPU_LIBRARIES):
            return "ir knows no GPU library"
    elif within(module, "sparsegen.backends"):
        if ours and not within(target, "sparsegen.ir", "sparsegen.backends"):
            return "a back end imports only sparsegen.ir and sparsegen.backends"
        if within(module, "sparsegen.backends.emulator", "sparsegen.backends.reference") and within(
            target, "sparsegen.backends.cuda", *GPU_LIBRARIES
        ):
            return "the emulator and the reference run on a machine without CUDA"
    elif within(module, "sparsegen.cost", "sparsegen.products.cost") and within(
        target, "sparsegen.backends", *(f"sparsegen.ir.{part}" for part in ("warp", "lower", "kernels", "passes"))
    ):
        return "the cost formulas are checked against the emulator's counts, so they must not come from there"
    return None


@pytest.mark.parametrize(
    ("module", "source", "bad"),
    [
        ("sparsegen.ir.node", "from sparsegen.backends import cuda", True),
        ("sparsegen.ir.node", "def f():\n    import sparsegen.schedule", True),
        ("sparsegen.ir.node", "from . import types\nfrom sparsegen.ir.errors import Loc", False),
        ("sparsegen.ir.node", "from .. import dsl", True),
        ("sparsegen.ir.node", "from .. import _version", False),
        ("sparsegen.ir.passes.tile", "from ...schedule import Schedule", True),
        ("sparsegen.ir.passes.tile", "from ..node import Op", False),
        ("sparsegen.backends.cuda.printer", "from sparsegen import ir\nimport pycuda.driver", False),
        ("sparsegen.backends.cuda.printer", "import sparsegen", True),
        ("sparsegen.backends.emulator.machine", "from ..cuda import printer", True),
        ("sparsegen.cost.stencil", "from sparsegen.ir.warp import Mma", True),
        ("sparsegen.cost.update", "from sparsegen.backends.emulator import run", True),
        ("sparsegen.driver", "from sparsegen.backends.cuda import launch", False),
    ],
)
def test_the_rule_itself(module: str, source: str, bad: bool) -> None:
    """The check finds what it must, and nothing else."""
    faults = [fault(module, target) for _, target in imports(ast.parse(source), module, package=False)]
    assert any(faults) == bad


def test_imports_go_one_way() -> None:
    """sparsegen → backends → ir."""
    faults = []
    for file in FILES:
        module, package = name_of(file), file.name == "__init__.py"
        for line, target in imports(ast.parse(file.read_text(encoding="utf-8")), module, package=package):
            if reason := fault(module, target):
                faults.append(f"{file.relative_to(ROOT)}:{line}: imports {target}: {reason}")
    assert not faults, "\n".join(faults)


def at_run_time(tree: ast.AST) -> ast.AST:
    """The tree without what only type checkers see."""

    class Out(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> Any:
            return self.generic_visit(node) if "TYPE_CHECKING" not in ast.unparse(node.test) else node.orelse or None

    return Out().visit(tree)


def circles(sources: Mapping[str, tuple[str, bool]]) -> list[set[str]]:
    """The modules that import one another at run time, inside functions too.

    ``sources``: each module's text, and whether it is a package, whose own modules may import it.
    """
    graph = nx.DiGraph()
    for module, (source, package) in sources.items():
        for _, target in imports(at_run_time(ast.parse(source)), module, package=package):
            found = next((name for name in (target, target.rpartition(".")[0]) if name in sources), module)
            if found != module and not (sources[found][1] and within(module, found)):
                graph.add_edge(module, found)
    return [part for part in nx.strongly_connected_components(graph) if len(part) > 1]


def test_circles_are_found() -> None:
    a, b = "if TYPE_CHECKING:\n    import p.b", "def f():\n    from p.a import x"
    assert circles({"p.a": (a, False), "p.b": (b, False)}) == []
    assert circles({"p.a": ("from p import b", False), "p.b": (b, False)}) == [{"p.a", "p.b"}]
    assert circles({"p": ("from p.a import x", True), "p.a": ("import p", False)}) == []
    assert circles({"p": ("from p.a import x", True), "p.a": ("import q", False), "q": ("import p", False)}) != []


def test_no_module_imports_itself_by_way_of_others() -> None:
    read = {name_of(file): (file.read_text(encoding="utf-8"), file.name == "__init__.py") for file in FILES}
    found = circles(read)
    assert found == [], "\n".join(", ".join(sorted(part)) for part in found)


def test_files_are_short() -> None:
    """No file reaches 450 lines; one that nears it gets a warning."""
    lines = {file.relative_to(ROOT): len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    for file, count in lines.items():
        if WARN_LINES < count < MAX_LINES:
            warnings.warn(f"{file} has {count} lines; the limit is {MAX_LINES}", stacklevel=1)
    long = [f"{file}: {count} lines" for file, count in lines.items() if count >= MAX_LINES]
    assert not long, f"split these (limit {MAX_LINES}): {long}"


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each name that a module defines or uses; comments and docstrings may cite whom they like."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname"):
            if isinstance(text := getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), text


def test_passes_name_no_paper() -> None:
    """A pass says what it does, not who did it first: its file name and identifiers hold no paper's name."""
    found = []
    for file in FILES:
        if within(name_of(file), "sparsegen.ir.passes", "sparsegen.ir.kernels"):
            names = [(0, file.stem), *identifiers(ast.parse(file.read_text(encoding="utf-8")))]
            found += [f"{file.relative_to(ROOT)}:{line}: {text}" for line, text in names if PAPERS.search(text)]
    assert not found, "\n".join(found)
