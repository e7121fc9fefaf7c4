"""Run mypy and pyright, both strict, on the package as it is imported, and on README's examples as a user has them.

``ir/`` and ``backends/`` stand beside ``sparsegen/`` but are imported as ``sparsegen.ir`` and ``sparsegen.backends``.
Neither tool can be told so; hence ``.typecheck/sparsegen/``: real folders (pyright walks into no linked folder) with a
link to each file.  Messages name the real files again.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINKS = ROOT / ".typecheck"
PARTS = {"sparsegen": "sparsegen", "ir": "sparsegen/ir", "backends": "sparsegen/backends"}

# pyright's strict mode, less what complains of libraries without types (sympy, networkx, pycuda: what they return is
# "unknown") and of checks at the public boundary, which stand there for callers who use no type checker.
PYRIGHT = {
    "include": ["sparsegen", "readme.py", "user.py"],
    "typeCheckingMode": "strict",
    "pythonVersion": "3.10",
    "reportMissingTypeStubs": False,
    "reportMissingModuleSource": False,
    "reportUnknownMemberType": False,
    "reportUnknownVariableType": False,
    "reportUnknownArgumentType": False,
    "reportUnknownLambdaType": False,
    "reportUnnecessaryIsInstance": False,
    "reportUnnecessaryComparison": False,
    "reportPrivateUsage": False,
    "reportDeprecated": False,
}
OPTIONAL = ("pycuda", "cuda", "cupy", "torch", "safetensors", "matplotlib", "tomli", "rich", "tqdm", "zarr")
"""Libraries that may be missing where the types are checked."""


def link() -> int:
    """Build the link folder anew; the number of Python files in it."""
    shutil.rmtree(LINKS / "sparsegen", ignore_errors=True)
    count = 0
    for part, name in PARTS.items():
        for file in sorted((ROOT / part).rglob("*")):
            if file.suffix == ".py" or file.name == "py.typed":
                to = LINKS / name / file.relative_to(ROOT / part)
                to.parent.mkdir(parents=True, exist_ok=True)
                to.symlink_to(file)
                count += file.suffix == ".py"
    (LINKS / "pyrightconfig.json").write_text(json.dumps(PYRIGHT, indent=2))
    return count


def users() -> None:
    """Write README's Python examples, one after another, to a user's file, and link the one that stands beside this."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    (LINKS / "readme.py").write_text("\n".join(blocks))
    (LINKS / "user.py").unlink(missing_ok=True)
    (LINKS / "user.py").symlink_to(ROOT / ".ci" / "user.py")


def run(*args: str) -> tuple[int, str]:
    """Run a tool with this Python; its exit status and its output with the real paths."""
    done = subprocess.run([sys.executable, "-m", *args], cwd=ROOT, text=True, capture_output=True)
    text = (done.stdout + done.stderr).replace(f"{ROOT}/", "")
    text = re.sub(r"\.typecheck/sparsegen/(ir|backends)/", r"\1/", text)
    return done.returncode, text.replace(".typecheck/sparsegen/", "sparsegen/")


def pyright(count: int) -> bool:
    """Run pyright, and make sure that it saw every file (it ends with success when it finds none)."""
    code, text = run("pyright", "-p", ".typecheck", "--pythonpath", sys.executable, "--stats")
    optional = re.compile(rf'Import "({"|".join(OPTIONAL)})[."].*could not be resolved')
    errors = [line for line in text.splitlines() if " - error" in line and not optional.search(line)]
    seen = re.search(r"Total files checked: (\d+)", text)
    if seen is None or int(seen[1]) != count:
        print(f"{text}\npyright did not check all {count} files")
        return False
    if code not in (0, 1):
        print(text)
        return False
    print("\n".join([*errors, f"pyright: {len(errors)} errors in {count} files"]))
    return not errors


def main() -> int:
    """Link, then run both tools."""
    count = link()
    users()
    code, text = run("mypy", "-p", "sparsegen")
    print(f"mypy: {text.strip()}")
    code_of_user, text = run("mypy", "--strict", *(str(LINKS / name) for name in ("readme.py", "user.py")))
    print(f"mypy, README's examples and .ci/user.py: {text.strip()}")
    return 0 if pyright(count + 2) and code == code_of_user == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
