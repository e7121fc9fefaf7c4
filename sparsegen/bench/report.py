"""Results as JSON, as a table in a terminal, and as tables in Markdown between two comments of a document.

A document says ``<!-- bench:spine -->`` … ``<!-- end -->``; what stands between is made from ``docs/bench/spine.json``.
``<!-- bench:spine rows -->`` names another view of the same file, ``<!-- bench:stencil picture -->`` its picture.

A suite that is measured in parts has one JSON for all: ``parts`` says of each of them when, where and of what it was
made, and a part that is measured again replaces its own rows only.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from sparsegen._version import __version__
from sparsegen.bench import packed, papers, summary
from sparsegen.bench.cells import Cells, Result
from sparsegen.bench.chosen import measured
from sparsegen.bench.harness import TOLERANCE, AnyRow
from sparsegen.bench.notes import PEERS, annotated, footnotes
from sparsegen.bench.tables import VIEWS, parts_of
from sparsegen.ir.errors import ArrayError, SparsegenError

FORMAT: Final = 1
#: Keys of a result.
KEYS: Final = (
    "format", "suite", "device", "driver", "nvcc", "python", "sparsegen", "commit", "dirty", "sources", "date",
    "seconds", "cold", "seed", "tolerance", "rows",
)  # fmt: skip
#: What is in the pictures of a suite, for those who do not see it.
PICTURES: Final = {
    "stencil": "Measured and predicted GS/s over the size of the field",
    "regret": "Predicted over measured seconds of every schedule that was tried",
    "unstructured": "Speed over that of libraries, by the share of entries",
}
#: What names the table of papers in a document, and what stands where nothing was measured.
PAPERS, NOT_YET = "papers", "*Not measured yet.*"
_FOLDERS: Final = ("sparsegen", "ir", "backends")
_MARK: Final = re.compile(r"(<!-- bench:([\w-]+)(?: ([\w-]+))? -->\n).*?(<!-- end -->)", re.DOTALL)


# ------------------------------------------------------------------------------------------------ where it comes from
@dataclass(frozen=True)
class Origin:
    """What was measured: the commit (None if not known), whether its sources were changed, and a digest of them."""

    commit: str | None
    dirty: bool | None
    sources: str

    def __str__(self) -> str:
        if self.commit is None:
            return f"no commit known, sources {self.sources}"
        return f"commit {self.commit[:10]}{', with uncommitted changes' if self.dirty else ''}"


def origin(commit: str | None = None) -> Origin:
    """The origin of the package that runs; ``commit`` is for a copy of a checkout with no ``.git``, or an older one.

    The digest of the sources says whether it is true.
    """
    import sparsegen
    from sparsegen import backends, ir

    root = Path(str(sparsegen.__file__)).resolve().parent.parent
    digest = hashlib.sha256()
    for folder, module in zip(_FOLDERS, (sparsegen, ir, backends), strict=True):
        base = Path(str(module.__file__)).resolve().parent
        for file in sorted(base.rglob("*")):
            if file.suffix in (".py", ".toml", ".j2"):
                digest.update(f"{folder}/{file.relative_to(base).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    sources = digest.hexdigest()[:16]
    git = "git", "-C", str(root)
    if commit or _said(*git, "ls-files", "--error-unmatch", "sparsegen/__init__.py") is None:
        return Origin(commit, False if commit else None, sources)
    head = _said(*git, "rev-parse", "HEAD")
    changes = _said(*git, "status", "--porcelain", "--", *_FOLDERS)
    return Origin(head or None, bool(changes), sources)


def _said(*command: str) -> str | None:
    """What a program prints; None where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def driver_version() -> str:
    """The NVIDIA driver's version, empty if it cannot be found out."""
    return (_said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "").partition("\n")[0]


def header(seconds: float, cold: bool, seed: int, commit: str | None = None) -> Result:
    """What a result says of the machine, the sources and the harness's options."""
    from sparsegen.backends.cuda.nvcc import find_nvcc
    from sparsegen.target import gpu_info

    gpu, where = gpu_info(), origin(commit)
    return {
        "device": "" if isinstance(gpu, SparsegenError) else gpu.name,
        "driver": driver_version(),
        "nvcc": find_nvcc().version,
        "python": platform.python_version(),
        "sparsegen": __version__,
        "commit": where.commit,
        "dirty": where.dirty,
        "sources": where.sources,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "seconds": seconds,
        "cold": cold,
        "seed": seed,
        "tolerance": TOLERANCE,
    }


def result(suite: str, rows: Sequence[AnyRow], head: Result) -> Result:
    """The JSON of a measured suite."""
    found = {"format": FORMAT, "suite": suite, **head, "rows": [row.as_json() for row in rows]}
    parts = dict.fromkeys(row.part for row in rows if row.part)
    return {**found, "parts": dict.fromkeys(parts, head)} if parts else found


def merged(old: Result, new: Result) -> Result:
    """``new`` with those parts of ``old`` that it does not have; ArrayError if they are not parts of one suite."""
    if old["suite"] != new["suite"]:
        raise ArrayError(
            f"a result of {old['suite']} is there, this is one of {new['suite']}", hint="name another file"
        )
    kept = {part: head for part, head in old.get("parts", {}).items() if part not in new.get("parts", {})}
    rows = [row for row in old["rows"] if row.get("part") in kept]
    return {**new, "rows": [*rows, *new["rows"]], "parts": {**kept, **new.get("parts", {})}} if kept else new


def save(found: Result, path: Path) -> None:
    """Write a result; ArrayError if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        packed.write(path, json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    except OSError as error:
        raise ArrayError(f"cannot write {path}: {error.strerror}", hint="name another file for --out") from error


def results(folder: Path) -> dict[str, Path]:
    """The files of a folder that hold results, compressed ones too, by name."""
    return {packed.stem(file): file for file in sorted(folder.glob("*.json*")) if file.name != PEERS}


def load(path: Path) -> Result:
    """A result from its file; ArrayError if it is none."""
    try:
        found = json.loads(packed.read(path))
    except (OSError, ValueError) as error:
        raise ArrayError(f"{path} is no result: {error}", hint="make it with sparsegen bench --out") from error
    missing = set(KEYS) - set(found) if isinstance(found, dict) else set(KEYS)
    if missing or found["format"] != FORMAT:
        lacks = f"has no {min(missing)}" if missing else f"is of format {found['format']}, not {FORMAT}"
        raise ArrayError(f"{path} {lacks}", hint="make it anew with sparsegen bench --out")
    out: Result = found
    return out


# ------------------------------------------------------------------------------------------------------ in a terminal
def columns(rows: Sequence[Sequence[str]]) -> str:
    """Cells with their head, as aligned text; the first column to the left, the others to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.ljust(w) if at == 0 else c.rjust(w) for at, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def text(found: Result) -> str:
    """A short table for a terminal, and a line that says what was measured where."""
    failures = [f"{row['case']}, {row['schedule']}: {row['failed']}" for row in found["rows"] if row["failed"]]
    views = VIEWS[found["suite"]]
    first = [view for view in ("summary", "weights", "vectors", "graphs", "split") if parts_of(found, view)]
    shown = [view for view in dict.fromkeys([*first, *found.get("parts", ())]) if view in views] or [[*views][-1]]
    blocks = [f"{view}\n{columns(views[view](found))}\n{caption(found, view)}\n" for view in shown]
    return "\n".join([*blocks, *failures]).replace("`", "")


def caption(found: Result, view: str = "") -> str:
    """Where and of what the numbers of a view are: a line for each time that parts of it were measured."""
    heads = [found["parts"][part] for part in parts_of(found, view)] or [found]
    return "; ".join(dict.fromkeys(map(_made, heads)))


def _made(head: Result) -> str:
    commit = Origin(head["commit"], head["dirty"], head["sources"])
    l2 = ", cold L2" if head["cold"] else ""
    driver = f", driver {head['driver']}" if head["driver"] else ""
    tools = f"nvcc {head['nvcc']}, sparsegen {head['sparsegen']}"
    return f"{head['device']}{driver}, {tools}, {commit}, {head['date'][:10]}{l2}"


# -------------------------------------------------------------------------------------------------------- in Markdown
def markdown(found: Result, view: str | None = None) -> str:
    """A view of a result as a Markdown table with its caption."""
    views = VIEWS[found["suite"]]
    if view is not None and view not in views:
        raise ArrayError(f"a {found['suite']} result has no view {view!r}", hint=f"there are: {', '.join(views)}")
    view = view or next(iter(views))
    cells = views[view](found)
    shown = [row for row in found["rows"] if row.get("part", "") in (parts_of(found, view) or [row.get("part", "")])]
    return _written(cells, caption(found, view), footnotes(shown, cells, found.get("peers", {})))


def _written(cells: Cells, under: str, notes: Sequence[str]) -> str:
    """A table in Markdown with what stands below it."""
    head, *body = cells
    texts = {"stencil", "weights", "size", "schedule", "form", "call", "bound by", "boundary", "type", "x", "problem",
             "quantity", "best", "graph", "pattern", "L2", "paper", "product", "without", "wins", "beside"}  # fmt: skip
    rule = ["---" if name in texts else "---:" for name in head]
    rows = [*(f"| {' | '.join(row)} |" for row in (head, rule, *body))]
    return "\n".join([*rows, "", f"*{under}*", *(line for note in notes for line in ("", note))])


def _of_papers(folder: Path) -> str:
    """The table of papers, which are measured by several suites."""
    found = _every(folder)
    cells = papers.table(found)
    notes = footnotes((), cells, found.get("bitmap", {}).get("peers", {}))
    return _written(cells, papers.caption(found), notes) if cells[1:] else NOT_YET


def _every(folder: Path) -> dict[str, Result]:
    """The results that the tables of several suites are of."""
    files = results(folder)
    return {name: annotated(load(files[name]), folder) for name in papers.SUITES if name in files}


def summed_up(folder: Path) -> Cells:
    """The table of README, from the JSON in ``folder``."""
    return summary.table(_every(folder), _peers(folder))


def _peers(folder: Path) -> dict[str, Any]:
    file = folder / PEERS
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def _of_summary(folder: Path) -> str:
    cells = summed_up(folder)
    return _written(cells, papers.caption(_every(folder)), summary.notes(_peers(folder))) if cells[1:] else NOT_YET


def pictures(found: Result) -> dict[str, str]:
    """The files of the pictures of a result by the kind of matrices that each is of; the empty kind: of all rows."""
    suite = found["suite"]
    kinds = dict.fromkeys(row["kind"] for row in measured(found)) if suite == "unstructured" else {"": None}
    return {kind: f"{f'{suite} {kind}'.strip().replace(' ', '-')}.svg" for kind in kinds}


def render(document: str, folder: Path, beside: Path | None = None) -> str:
    """The document with every marked table made anew from the JSON in ``folder``.

    ``beside``: the folder that the document is in, which its links start from (default: ``folder``).
    """

    def table(match: re.Match[str]) -> str:
        if match[2] in (PAPERS, summary.NAME):
            made = _of_papers if match[2] == PAPERS else _of_summary
            return f"{match[1]}{made(folder)}\n{match[4]}"
        file = results(folder).get(match[2])
        found = annotated(load(file), folder) if file else {}
        if not found or ("parts" in found and not parts_of(found, match[3] or next(iter(VIEWS[match[2]])))):
            body = NOT_YET
        elif match[3] == "picture":
            places = {kind: os.path.relpath(folder / name, beside or folder) for kind, name in pictures(found).items()}
            told = PICTURES[match[2]]
            body = "\n".join(
                f"![{told}{f': {kind}' if kind else ''}]({Path(place).as_posix()})" for kind, place in places.items()
            )
        else:
            body = markdown(found, match[3])
        return f"{match[1]}{body}\n{match[4]}"

    return _MARK.sub(table, document)
