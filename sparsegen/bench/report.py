"""Results as JSON, as a table in a terminal, and as tables in Markdown between two comments of a document.

A document says ``<!-- bench:spine -->`` … ``<!-- end -->``; what stands between is made from ``docs/bench/spine.json``.
``<!-- bench:spine forms -->`` names another view of the same file.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from sparsegen._version import __version__
from sparsegen.bench.harness import TOLERANCE, Row
from sparsegen.ir.errors import ArrayError, SparsegenError

FORMAT: Final = 1
#: Keys of a result, and of each of its rows.
KEYS: Final = (
    "format", "suite", "device", "driver", "nvcc", "python", "sparsegen", "commit", "dirty", "sources", "date",
    "seconds", "cold", "seed", "tolerance", "rows",
)  # fmt: skip
ROW_KEYS: Final = tuple(Row.__dataclass_fields__)
Result = dict[str, Any]
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
    """The origin of the package that runs; ``commit`` is for a copy of a checkout that has no ``.git``."""
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
    if _git(root, "ls-files", "--error-unmatch", "sparsegen/__init__.py") is None:
        return Origin(commit, False if commit else None, sources)
    head = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--", *_FOLDERS)
    return Origin(head or None, bool(changes), sources)


def _git(root: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *args], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def driver_version() -> str:
    """The NVIDIA driver's version, empty if it cannot be found out."""
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.split()[0]
    except (OSError, subprocess.TimeoutExpired):
        pass
    try:
        found = re.search(r"Kernel Module\D*([\d.]+)", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        return ""
    return found[1] if found else ""


def result(suite: str, rows: Sequence[Row], seconds: float, cold: bool, seed: int, commit: str | None = None) -> Result:
    """The JSON of a measured suite."""
    from sparsegen.backends.cuda.nvcc import find_nvcc
    from sparsegen.target import gpu_info

    gpu, where = gpu_info(), origin(commit)
    return {
        "format": FORMAT,
        "suite": suite,
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
        "rows": [row.as_json() for row in rows],
    }


def save(found: Result, path: Path) -> None:
    """Write a result; ArrayError if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ArrayError(f"cannot write {path}: {error.strerror}", hint="name another file for --out") from error


def load(path: Path) -> Result:
    """A result from its file; ArrayError if it is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArrayError(f"{path} is no result: {error}", hint="make it with sparsegen bench --out") from error
    missing = set(KEYS) - set(found) if isinstance(found, dict) else set(KEYS)
    if missing or found["format"] != FORMAT:
        lacks = f"has no {min(missing)}" if missing else f"is of format {found['format']}, not {FORMAT}"
        raise ArrayError(f"{path} {lacks}", hint="make it anew with sparsegen bench --out")
    out: Result = found
    return out


# ------------------------------------------------------------------------------------------------------ in a terminal
def number(value: float | str | None, form: str = ".1f") -> str:
    """A number in a cell; a dash for none."""
    return "–" if value is None else format(value, form) if isinstance(value, (int, float)) else value


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
    if found["suite"] == "ablation":
        return f"{columns(_ablation(found))}\n{caption(found)}"
    cells = [["case", "shape", "boundary", "GS/s", "µs", "±", "at least", "model", "error", ""]]
    for row in found["rows"]:
        if row["failed"]:
            cells.append([f"{row['case']}, {row['schedule']}", _size(row), row["boundary"], *[""] * 6, "FAILED"])
            continue
        spread = (row["p90"] - row["p10"]) / row["median_s"] / 2
        least = f"≤ {row['limit_s'] * 1e6:g} µs" if row["limit_s"] else number(row["target"], "g")
        cells.append(
            [f"{row['case']}, {row['schedule']}", _size(row), row["boundary"], number(row["gs_per_s"]),
             number(row["median_s"] * 1e6), f"{spread:.1%}", least, number(row["predicted_gs"], ".0f"),
             number(row["error"], ".0e"), "ok" if row["ok"] else "NOT OK"]
        )  # fmt: skip
    failures = [f"{row['case']}, {row['schedule']}: {row['failed']}" for row in found["rows"] if row["failed"]]
    return "\n".join([columns(cells), caption(found), *failures])


def caption(found: Result) -> str:
    """Where and of what the numbers are."""
    commit = Origin(found["commit"], found["dirty"], found["sources"])
    l2 = ", cold L2" if found["cold"] else ""
    driver = f", driver {found['driver']}" if found["driver"] else ""
    return (
        f"{found['device']}{driver}, nvcc {found['nvcc']}, sparsegen {found['sparsegen']}, {commit}, "
        f"{found['date'][:10]}{l2}"
    )


def _size(row: Mapping[str, Any]) -> str:
    return "×".join(map(str, row["shape"]))


# -------------------------------------------------------------------------------------------------------- in Markdown
def _targets(found: Result) -> list[list[str]]:
    """One line a form and size, one column a boundary; a value below its target is marked."""
    rows = [row for row in found["rows"] if row["target"] is not None]
    kinds = list(dict.fromkeys(row["boundary"] for row in rows))
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        groups.setdefault((row["case"], _size(row), row["schedule"]), {})[row["boundary"]] = row
    cells = [["stencil", "size", "schedule", "at least", *kinds]]
    for (case, size, schedule), by_kind in groups.items():
        least = next(iter(by_kind.values()))["target"]
        values = [_judged(by_kind[kind]) if kind in by_kind else "" for kind in kinds]
        cells.append([case, size, f"`{schedule}`", number(least, "g"), *values])
    return cells


def _judged(row: Mapping[str, Any]) -> str:
    if row["failed"]:
        return "failed"
    return f"{number(row['gs_per_s'], '.0f')}{'' if row['ok'] else ' ✗'}"


def _forms(found: Result) -> list[list[str]]:
    """Every form at the first size and boundary, the fastest first of each stencil."""
    rows = [row for row in found["rows"] if not row["failed"]]
    rows = [row for row in rows if (row["shape"], row["boundary"]) == (rows[0]["shape"], rows[0]["boundary"])]
    names = list(dict.fromkeys(row["case"].partition(",")[0] for row in rows))
    rows.sort(key=lambda row: (names.index(row["case"].partition(",")[0]), -(row["gs_per_s"] or 0)))
    cells = [["stencil", "schedule", "GS/s", "model", "bound by", "registers", "shared memory", "error"]]
    for row in rows:
        cells.append(
            [row["case"], f"`{row['schedule']}`", _judged(row), number(row["predicted_gs"], ".0f"), str(row["bound"]),
             number(row["regs"], "d"), number(row["smem"], "d"), number(row["error"], ".0e")]
        )  # fmt: skip
    return cells


def _ablation(found: Result) -> list[list[str]]:
    from sparsegen.bench import ablation
    from sparsegen.cost.devices import load_profile

    models = {"model, A100": ablation.predicted(load_profile("a100"))}
    return ablation.table(ablation.of_rows(found["rows"]), models)


def _overhead(found: Result) -> list[list[str]]:
    cells = [["call", "host time, µs", "10 %", "90 %", "at most"]]
    for row in found["rows"]:
        times = [number(None if row[key] is None else row[key] * 1e6) for key in ("median_s", "p10", "p90")]
        case = f"{row['case']}, {_size(row)}, {row['steps']} step"
        cells.append([case, *times, number(row["limit_s"] * 1e6, "g")])
    return cells


#: suite -> view -> its table; the first is the one shown where none is named.
VIEWS: Final[dict[str, dict[str, Callable[[Result], list[list[str]]]]]] = {
    "spine": {"targets": _targets, "forms": _forms},
    "ablation": {"table": _ablation},
    "overhead": {"table": _overhead},
}


def markdown(found: Result, view: str | None = None) -> str:
    """A view of a result as a Markdown table with its caption."""
    views = VIEWS[found["suite"]]
    if view is not None and view not in views:
        raise ArrayError(f"a {found['suite']} result has no view {view!r}", hint=f"there are: {', '.join(views)}")
    head, *body = views[view or next(iter(views))](found)
    texts = {"stencil", "size", "schedule", "form", "call", "bound by"}
    rule = ["---" if name in texts else "---:" for name in head]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in (head, rule, *body)), "", f"*{caption(found)}*"])


def render(document: str, folder: Path) -> str:
    """The document with every marked table made anew from the JSON in ``folder``."""

    def table(match: re.Match[str]) -> str:
        file = folder / f"{match[2]}.json"
        body = markdown(load(file), match[3]) if file.is_file() else "*Not measured yet.*"
        return f"{match[1]}{body}\n{match[4]}"

    return _MARK.sub(table, document)
