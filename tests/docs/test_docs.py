"""The documents say what is true: links and files exist, examples run, commands are there, excerpts are current."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.cli import parser
from sparsegen.cost.devices import load_profile
from sparsegen.cost.search import candidates
from sparsegen.dsl.stencil import DTYPES, Stencil
from sparsegen.families.spmm import ProductFamily
from sparsegen.footprint import Footprint
from sparsegen.formats.encode import FORMATS
from sparsegen.formats.format import held
from sparsegen.formats.matrix import KINDS
from sparsegen.ir.errors import FormatError, ScheduleError
from sparsegen.ir.layout import layout
from sparsegen.registry import families
from tests.updates import NAMED

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
OF_SCHEDULES = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
#: A path of this repository in backticks: below one of its folders, with no placeholder in capitals.
PATH = re.compile(r"`((?:sparsegen|ir|backends|tests|examples|docs|\.ci)/[\w./-]*)`")
RUNNABLE = re.compile(r"<!-- run -->\n```python\n(.*?)```", re.DOTALL)
#: family, axes, types, words
SCHEDULES = re.findall(r"^\| `(\w+)` \| ([\d, ]*) \| ([\w, ]*) \| [^|]* \| ([^|]*) \|$", OF_SCHEDULES, re.MULTILINE)
files = pytest.mark.parametrize("file", FILES, ids=lambda f: f.relative_to(ROOT).as_posix())


def prose(file: Path) -> str:
    """The document without its code blocks."""
    return re.sub(r"^ *```.*?^ *```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(file: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", prose(file), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def blur(axes: int, dtype: str) -> Stencil:
    """Three cells on each axis, all the same weight."""
    return Stencil.from_weights(np.full((3,) * axes, 3.0**-axes), dtype=dtype).gridded


@files
def test_links_lead_somewhere(file: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(file)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        assert target.exists(), f"{file.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{file.name}: {link}"


@files
def test_named_files_exist(file: Path) -> None:
    for path in PATH.findall(prose(file)):
        assert "NAME" in path or (ROOT / path).exists(), f"{file.name}: {path}"


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_readmes_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = RUNNABLE.findall(README)
    assert len(blocks) == 3 and README.count("```python") == len(blocks)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    said = capsys.readouterr().out
    assert "0 errors, 0 notes" in said
    sg, u0, sizes = names["sg"], names["u0"], {"shape": (256, 256), "steps": 6, "backend": "reference"}
    assert abs(names["u1"] - sg.compile(names["heat2d"], **sizes)(u0)).max() < 1e-12
    now, before = sg.compile(names["wave"], **sizes)((u0, u0), 0.25 + 0 * u0)
    assert abs(names["now"] - now).max() < 1e-12 and abs(names["before"] - before).max() < 1e-12


def test_a_schedule_that_is_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(RUNNABLE.findall(OF_SCHEDULES)[0], "schedules.md", "exec"), {})
    assert capsys.readouterr().out == "26.0 mma for 64 outputs\n"


def test_the_formula_with_functions_runs() -> None:
    names: dict[str, Any] = {}
    first, second = RUNNABLE.findall(OF_SCHEDULES)
    exec(compile("\n".join([*first.splitlines()[:2], second]), "schedules.md", "exec"), names)
    new = old = names["start"]
    for _ in range(200):
        pull = np.roll(new, 1) - 2 * new + np.roll(new, -1)
        new, old = new + np.exp(-0.05) * (new - old) + 0.2 * pull - 0.01 * np.sin(new), new
    assert abs(names["now"] - new).max() < 1e-12 < abs(new - names["start"]).max()


def examples_of_a_paper() -> list[str]:
    text = (ROOT / "docs" / "add_a_paper.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_family_of_five_minutes_compiles() -> None:
    import sparsegen as sg

    block, _ = examples_of_a_paper()
    (line,) = re.findall(r'schedule="(mine .*?)"', block)
    try:
        exec(compile(block, "add_a_paper.md", "exec"), {})
        k = sg.compile(blur(2, "f64"), shape=(40, 70), device="h200", backend="emulator", schedule=line)
        assert k.check().ok and str(k.schedule) == f"{line} fuse=1"
    finally:
        families("stencil").pop("mine", None)  # type: ignore[attr-defined]


def test_the_example_of_a_layout_is_true() -> None:
    _, block = examples_of_a_paper()
    names: dict[str, Any] = {}
    exec(compile(block, "add_a_paper.md", "exec"), names)
    plain = layout({"r": 8, "c": 8}, lambda r, c: r * 8 + c)
    assert plain.conflict_degree(names["down"], elem_bytes=8) == 4


@files
def test_commands_exist(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    code = re.findall(r"`([^`\n]+)`", prose(file))
    code += [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in
             block.replace("\\\n", " ").splitlines()]  # fmt: skip
    for command in code:
        words = shlex.split(command, comments=True) if command.startswith(("make ", "sparsegen ")) else []
        if words[:1] == ["make"]:
            assert words[1] in targets, f"{file.name}: {command}"
        elif len(words) > 2:
            parser().parse_args(words[1:])  # exits where it cannot
        elif words:
            assert words[1] in parser().format_help(), f"{file.name}: {command}"


def test_every_command_of_the_command_line_is_in_the_readme() -> None:
    (named,) = re.findall(r"\{([\w,]+)\}", parser().format_usage()) or [""]
    commands = named.split(",") if named else re.findall(r"^    ([a-z]+) ", parser().format_help(), re.MULTILINE)
    assert commands
    for command in commands:
        assert f"`{command}`" in README or f"`sparsegen {command}`" in README, command


def test_every_schedule_is_in_its_document_with_its_words() -> None:
    said = {family: tuple(re.findall(r"`(\w+)`", words)) for family, _, _, words in SCHEDULES}
    assert said == {name: tuple(word.name for word in family.words) for name, family in families("stencil").items()}


def test_what_a_schedule_takes_is_in_its_document() -> None:
    said = {
        (family, n, dtype)
        for family, axes, types, _ in SCHEDULES
        for n in map(int, axes.split(", "))
        for dtype in (DTYPES if types == "any" else types.split(", "))
    }
    found = {
        (s.family, n, dtype)
        for n in (1, 2, 3)
        for dtype in DTYPES
        for s in candidates(Footprint.of(blur(n, dtype)), load_profile("h200"), (1, 1024) if n == 1 else (1024,) * n, 4)
    }
    assert said == found


def test_every_schedule_of_updates_is_in_their_document() -> None:
    """The axes that it takes, and its words."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d, ]*) \| [^|]* \| ([^|]*) \|$", OF_SCHEDULES, re.MULTILINE)
    said = {family: (axes, tuple(re.findall(r"`(\w+)`", words))) for family, axes, words in rows}
    made: dict[str, Any] = dict(families("update"))
    cases = [(make(), shape) for make, shape in (NAMED[name] for name in ("burgers", "life", "heat"))]
    assert said == {
        name: (
            ", ".join(
                str(update.ndim) for update, shape in cases
                if any(not family.misfit(update, shape, s, load_profile("h200")) for s in family.candidates(update, 1))
            ),
            tuple(family.by_name),
        )
        for name, family in made.items()
    }  # fmt: skip


def test_every_schedule_of_products_is_in_their_document() -> None:
    """Its format, the types that it takes on an H200, and its words; but for a library's own product."""
    text = (ROOT / "docs" / "products.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\w`, ]*) \| ([\w, ]*) \| [^|]* \| ([^|]*) \|$", text, re.MULTILINE)
    said = {family: (formats, types, re.findall(r"`(\w+)`", words)) for family, formats, types, words in rows}
    made = {name: family for name, family in families("spmm").items() if isinstance(family, ProductFamily)}
    taken: dict[str, list[str]] = {name: [] for name in made if name != "dense"}
    for format in {f for name in taken for f in made[name].formats}:
        for dtype in FORMATS[format].dtypes:
            options = {"vector": 16} if format == "nm" else {}  # some families want rows that share their columns
            w = sg.sparse(np.zeros((128, 128), held(KINDS[dtype]).numpy()), format=format, dtype=dtype, **options)
            # of int32, which is what products give back; of floats, which not every family multiplies
            with suppress(FormatError, ScheduleError):
                costs = sg.schedules(sg.spmm(w, n=8), device="h200")
                for name in {str(c.schedule.family) for c in costs} & set(taken):
                    taken[name].append(dtype)
                for name in (name for name in taken if made[name].asked and format in made[name].formats):
                    short = {"x_dtype": dtype} if dtype[1:] == "4" else {}
                    sg.compile(sg.spmm(w, n=8, **short), device="h200", backend="emulator", schedule=name)
                    taken[name].append(dtype)
    assert said == {
        name: (
            ", ".join(f"`{f}`" for f in made[name].formats),
            ", ".join(dict.fromkeys(types)),
            list(made[name].by_name),
        )
        for name, types in taken.items()
    }


def test_every_extra_and_python_is_in_the_documents() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    versions = re.findall(r"Python :: (3\.\d+)", project)
    assert f"Python {versions[0]} to {versions[-1]}" in README
    assert "sparsegen[cuda]" in README and "extra `nvcc`" in README


@pytest.mark.parametrize(
    "script", ["walkthrough.py", "render_tables.py", "fragment_tables.py", "counters_table.py", "scaling_tables.py"]
)
def test_generated_parts_are_current(script: str) -> None:
    done = subprocess.run([sys.executable, str(ROOT / ".ci" / script), "--check"], text=True, capture_output=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun: make docs, which makes all generated parts anew"


def test_no_document_names_a_place_of_one_machine() -> None:
    for file in FILES:
        assert not re.search(r"/(home|work|root|tmp)/", file.read_text(encoding="utf-8")), file.name
