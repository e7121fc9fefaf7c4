"""Pages of the site that are made: from README and its like, from notebooks, of public names, and of the IR's ops.

A hook of MkDocs, which ``mkdocs.yml`` names.  Links that leave the documents, to code, become the names of files.
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import linecache
import os
import re
import sys
from contextlib import redirect_stdout, suppress
from functools import cached_property
from pathlib import Path
from posixpath import dirname, normpath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import sparsegen as sg  # noqa: E402
import sparsegen.torch  # noqa: E402
from sparsegen.ir.node import OPS, fields  # noqa: E402
from sparsegen.ir.registry import load_all  # noqa: E402

#: Documents at the top of the repository, and what the site calls them.
TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
#: A role of Sphinx, of which the name is what a reader wants.
_ROLE = re.compile(r":\w+:`~?([^`]*)`")


def on_files(files: Any, config: Any) -> Any:
    """The documents and the pages that are made."""
    from mkdocs.structure.files import File

    made = {place: (ROOT / name).read_text(encoding="utf-8") for name, place in TOP.items()}
    made |= {f"tutorials/{file.stem}.md": tutorial(file) for file in (ROOT / "examples/notebooks").glob("*.ipynb")}
    made |= {"reference/names.md": names(), "reference/torch.md": torch_names(), "reference/ops.md": ops()}
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to documents lead to their pages, those to other files become their names."""
    place = page.file.src_uri
    source = next((name for name, made in TOP.items() if made == place), f"docs/{place}")

    def link(match: re.Match[str]) -> str:
        picture, told, target = match.groups()
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path or place.startswith(("reference/", "tutorials/")):
            return match[0]
        name = normpath(f"{dirname(source)}/{path}").lstrip("/")
        if name.endswith(".ipynb"):
            name = f"docs/tutorials/{Path(name).stem}.md"
        to = TOP.get(name) or (name.removeprefix("docs/") if name.startswith("docs/") else None)
        if to is None or files.get_file_from_path(to) is None:
            return told if told.startswith("`") else f"`{told}`" if told == name else f"{told} (`{name}`)"
        relative = os.path.relpath(to, dirname(place) or ".")
        return f"{picture}[{told}]({relative}{f'#{anchor}' if anchor else ''})"

    return _LINK.sub(link, markdown)


def tutorial(file: Path) -> str:
    """The text of a notebook, its code, and what that shows; the code runs."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        else:
            # Where a stencil's lines stand is read from the source of its function.
            where = f"<{file.name} {len(parts)}>"
            linecache.cache[where] = (len(text), None, text.splitlines(keepends=True), where)
            parts += [f"```python\n{text}\n```", shown(text, where, names)]
    return "\n\n".join(filter(None, parts)) + "\n"


def shown(code: str, where: str, names: dict[str, Any]) -> str:
    """What a cell prints, and its last value as a notebook shows it; it runs with ``names``, and adds its own."""
    *lines, last = ast.parse(code).body
    value, said = None, io.StringIO()
    with redirect_stdout(said):
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(lines, []), where, "exec"), names)
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
        else:
            exec(compile(code, where, "exec"), names)
    text = said.getvalue() + ("" if value is None or hasattr(value, "_repr_html_") else repr(value))
    page = value._repr_html_() if hasattr(value, "_repr_html_") else ""
    return (f"```text\n{text.rstrip()}\n```\n\n" if text else "") + (f'<div class="shown">{page}</div>' if page else "")


def names() -> str:
    """Every public name: how it is called, and what its docstring says."""
    public = {name: getattr(sg, name) for name in sg.__all__ if name != "__version__"}
    first: dict[int, str] = {}
    parts = ["# Public names\n\nAll of these are names of `sparsegen`, which examples call `sg`."]
    for name, value in public.items():
        known = first.setdefault(id(value), name)
        parts.append(
            f"## {name}\n\n"
            + (_described(name, value) if known == name else f"The same as [{known}](#{known.lower()}).")
        )
    return "\n\n".join(parts) + "\n"


def _described(name: str, value: Any) -> str:
    parts = []
    if callable(value):
        with suppress(ValueError):
            parts.append(f"```python\n{'class ' if inspect.isclass(value) else ''}{name}{_signature(value)}\n```")
    elif not inspect.ismodule(value):
        return f"`{value!r}`: {_told(type(value))}"
    parts.append(_told(value))
    owned = _members(value) if inspect.isclass(value) else _functions(value) if inspect.ismodule(value) else {}
    for member, of in owned.items():
        plain = of.__func__ if isinstance(of, (classmethod, staticmethod)) else of
        held = isinstance(plain, (property, cached_property))
        if member.startswith("_") or not (held or inspect.isfunction(plain)):
            continue
        shown = "" if held else _signature(plain)
        parts.append(f"### {name}.{member}\n\n```python\n{member}{shown}\n```\n\n{_told(plain)}")
    return "\n\n".join(parts)


def _members(value: type) -> dict[str, Any]:
    """Its own, and those of bases of ours that have no page of their own."""
    bases = [b for b in value.__mro__[1:] if b.__module__.startswith("sparsegen.") and b.__name__ not in sg.__all__]
    return {name: of for base in (*reversed(bases), value) for name, of in vars(base).items()}


def _functions(module: Any) -> dict[str, Any]:
    return {name: of for name, of in vars(module).items() if getattr(of, "__module__", "") == module.__name__}


def _signature(of: Any) -> str:
    """The parameters, one a line where they are many."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(of)))  # of types, which are read as text
    return _wrapped(text)


def _wrapped(text: str) -> str:
    """A signature, one parameter a line where it is long; commas in brackets stay."""
    if len(text) < 90:
        return text
    lines, depth = [""], 0
    for at, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and letter == ")":
            return "\n    ".join(map(str.strip, lines)) + "\n" + text[at:]
        lines[-1] += letter
        if depth == 1 and letter in "(,":
            lines.append("")
    return text


def torch_names() -> str:
    """Every name of ``sparsegen.torch``, as its source has it: the site is built without torch."""
    parts = ["# Names for torch\n\nAll of these are names of `sparsegen.torch` (`st`), which needs the extra `torch`."]
    for name, home in sparsegen.torch._HOMES.items():
        tree = ast.parse((ROOT / "sparsegen" / "torch" / f"{home}.py").read_text(encoding="utf-8"))
        made = next(node for node in tree.body if getattr(node, "name", "") == name)
        parts.append(_declared("##", name, made))
        methods = [of for of in getattr(made, "body", ()) if isinstance(of, ast.FunctionDef)]
        if isinstance(made, ast.ClassDef):
            parts += [_declared("###", f"{name}.{of.name}", of) for of in methods if not of.name.startswith("_")]
    return "\n\n".join(parts) + "\n"


def _declared(level: str, name: str, of: Any) -> str:
    """A heading, how a function or class of the source is called, and its docstring."""
    makes = of
    if isinstance(of, ast.ClassDef):
        made = (m for m in of.body if isinstance(m, ast.FunctionDef) and m.name == "__init__")
        makes = next(made, None)
        fields = ", ".join(ast.unparse(f) for f in of.body if isinstance(f, ast.AnnAssign))
    taken = re.sub(r"^(self|cls)(, )?", "", ast.unparse(makes.args)).replace("=", " = ") if makes else fields
    text = f"({taken})"
    text += f" -> {ast.unparse(of.returns)}" if isinstance(of, ast.FunctionDef) and of.returns else ""
    kind = "class " if isinstance(of, ast.ClassDef) else ""
    told = _ROLE.sub(r"`\1`", ast.get_docstring(of) or "")
    return f"{level} {name}\n\n```python\n{kind}{name.rpartition('.')[2]}{_wrapped(text)}\n```\n\n{told}"


def _told(of: Any) -> str:
    return _ROLE.sub(r"`\1`", inspect.getdoc(of) or "")


def ops() -> str:
    """Every op of the three vocabularies: what it means, and its fields."""
    load_all()
    levels: dict[str, list[str]] = {"op": [], "tile": [], "warp": []}
    for name, op in sorted(OPS.items()):
        lines = [f"### {name}", "", _ROLE.sub(r"`\1`", inspect.cleandoc(op.__doc__ or "")), ""]
        declared = [(field, kind, str(of.type)) for field, kind, of in fields(op)]
        if declared:
            lines += ["| field | kind | type |", "| --- | --- | --- |"]
            lines += [f"| `{field}` | {kind} | `{kind_of.replace('|', '∣')}` |" for field, kind, kind_of in declared]
        levels[name.partition(".")[0]].append("\n".join(lines))
    told = {
        "op": "What is computed.", "tile": "How, in tiles: windows of data, their layouts, products, stores.",
        "warp": "Lanes and addresses: each op is at most one PTX instruction or one C expression.",
    }  # fmt: skip
    parts = [f"## {level}\n\n{told[level]}\n\n" + "\n\n".join(found) for level, found in levels.items()]
    return "# Ops of the IR\n\nMade from the declarations in `ir`.\n\n" + "\n\n".join(parts) + "\n"
