"""The package is the same installed, installed editable, and in a bare checkout; and it is quick to import."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS: dict[str, Any] = PROJECT["tool"]["setuptools"]
PARTS = {"sparsegen": "sparsegen", "ir": "sparsegen.ir", "backends": "sparsegen.backends"}
LAZY = ("sympy", "networkx", "jinja2", "pycuda", "scipy", "matplotlib", "torch")
"""Libraries that load when first needed, not with ``import sparsegen``."""


def packages_in_tree() -> dict[str, str]:
    """Every package, with its folder: the folders below the three parts that hold Python files."""
    found: dict[str, str] = {}
    for part, name in PARTS.items():
        for file in (ROOT / part).rglob("*.py"):
            folder = file.parent.relative_to(ROOT)
            found[".".join([name, *folder.parts[1:]])] = folder.as_posix()
    return found


def files_in_tree() -> set[str]:
    """Every file below the three parts, named as it is when installed."""
    return {
        "/".join([PARTS[part].replace(".", "/"), file.relative_to(ROOT / part).as_posix()])
        for part in PARTS
        for file in (ROOT / part).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def python(code: str, *, exe: str | Path = sys.executable, path: Path | None = None, cwd: Path | None = None) -> str:
    """Run ``code`` in a new Python, with ``path`` alone as PYTHONPATH; what it printed."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        env["PYTHONPATH"] = str(path)
    done = subprocess.run([str(exe), "-c", code], env=env, cwd=cwd, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- the list of packages ---------------------------------------------------------------------------------------------


def test_packages_equal_tree() -> None:
    """``packages`` in pyproject.toml is written by hand: it names each folder that holds Python files."""
    listed, tree = set(SETUPTOOLS["packages"]), set(packages_in_tree())
    assert not tree - listed, f"add to packages in pyproject.toml: {sorted(tree - listed)}"
    assert not listed - tree, f"take out of packages in pyproject.toml: {sorted(listed - tree)}"


def test_package_folders() -> None:
    """Every package is found in its folder: the nearest entry of ``package-dir`` and the rest of its name."""
    mapping: dict[str, str] = SETUPTOOLS["package-dir"]
    for package, folder in packages_in_tree().items():
        base = max((name for name in mapping if f"{package}.".startswith(f"{name}.")), key=len)
        assert "/".join([mapping[base], *package[len(base) :].split(".")[1:]]) == folder
        assert (ROOT / folder / "__init__.py").is_file(), f"{folder} has no __init__.py"


# --- three ways to install --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a build reads, so that building leaves no trace in the tree."""
    to = tmp_path_factory.mktemp("checkout")
    for name in PARTS:
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__", "*.json*"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"):
        shutil.copy(ROOT / name, to)
    return to


def environment(at: Path) -> Path:
    """A new environment that sees the libraries of this one, but no package installed editable here; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(at)], check=True)
    exe = at / "bin" / "python"
    site = Path(python("import sysconfig; print(sysconfig.get_path('purelib'), end='')", exe=exe))
    # A folder named in a .pth file is searched, but the .pth files in it (an editable install) are not read.
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "libraries.pth").write_text("\n".join(sorted(paths)) + "\n")
    return exe


def pip_install(exe: Path, *args: str) -> None:
    """Install what ``args`` name, with the build tools that are here (no network)."""
    flags = ["--quiet", "--no-deps", "--no-build-isolation", "--ignore-installed", "--no-index"]
    command = [str(exe), "-m", "pip", "--disable-pip-version-check", "install", *flags, *args]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


IDENTITY = """
import importlib, json, sys
import sparsegen, sparsegen.ir.errors, sparsegen.backends
assert sparsegen.ir.errors.SparsegenError is sparsegen.SparsegenError, "two classes of one name"
for name in {packages}:
    importlib.import_module(name)
print(json.dumps([m.__file__ for m in (sparsegen, sparsegen.ir.errors, sparsegen.backends)]))
"""


def imported_from(exe: str | Path, cwd: Path, path: Path | None = None) -> list[Path]:
    """Import every package, check that a class has one identity, and say where three of the modules are."""
    code = IDENTITY.replace("{packages}", json.dumps(sorted(packages_in_tree())))
    return [Path(file) for file in json.loads(python(code, exe=exe, cwd=cwd, path=path))]


def test_wheel(checkout: Path, tmp_path: Path) -> None:
    """A wheel holds every file of the tree and all that README links to; what it installs imports as one package."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(checkout)]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    held = zipfile.ZipFile(wheel).namelist()
    names = {name for name in held if not re.match(r"[^/]*\.(dist-info|data)/", name)}
    lost = files_in_tree() - names
    assert not lost, f"not in the wheel; add to package-data in pyproject.toml: {sorted(lost)}"
    assert not names - files_in_tree()
    told = {name.partition("/share/doc/sparsegen/")[2] for name in held}
    linked = re.findall(r"\]\(([^):#]+)[^)]*\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert {*linked, "CHANGELOG.md", "examples/heat2d.py"} <= told

    exe = environment(tmp_path / "env")
    pip_install(exe, str(wheel))
    for file in imported_from(exe, tmp_path):
        assert tmp_path / "env" in file.parents
    gone = "import importlib.util as u; print(u.find_spec('ir'), u.find_spec('backends'))"
    assert python(gone, exe=exe, cwd=tmp_path).split() == ["None", "None"]


def test_editable(checkout: Path, tmp_path: Path) -> None:
    """An editable install imports from the checkout."""
    exe = environment(tmp_path / "env")
    pip_install(exe, "--editable", str(checkout))
    for file in imported_from(exe, tmp_path):
        assert checkout in file.parents


def test_bare_checkout(checkout: Path, tmp_path: Path) -> None:
    """A checkout on PYTHONPATH works with nothing installed."""
    for file in imported_from(environment(tmp_path / "env"), tmp_path, path=checkout):
        assert checkout in file.parents


@pytest.mark.parametrize("part", ["ir", "backends"])
def test_plain_import_is_refused(part: str) -> None:
    """``import ir`` would load each class a second time, under another name: it fails, with the reason in a line."""
    code = f"try:\n import {part}\nexcept ImportError as error:\n print(error)"
    assert python(code, path=ROOT).splitlines() == [
        f"import this package as 'sparsegen.{part}': its folder only stands beside sparsegen/ in the repository"
    ]


# --- the version and the weight of an import --------------------------------------------------------------------------


def test_version_is_in_one_place() -> None:
    """pyproject.toml reads the version that the package shows."""
    import sparsegen
    from sparsegen._version import __version__

    assert "version" not in PROJECT["project"]
    assert sparsegen.__version__ == __version__


def test_import_loads_no_slow_library() -> None:
    """sympy, networkx, jinja2, pycuda and the like load when first needed."""
    loaded = python("import sparsegen, sys; print(*sys.modules)", path=ROOT).split()
    assert not sorted(set(LAZY) & set(loaded))


def test_an_import_loads_few_modules() -> None:
    """``import sparsegen`` loads at most thirty modules that numpy does not: the others load when first needed."""
    code = "import numpy, sys; before = {*sys.modules}; import sparsegen; print(*{*sys.modules} - before)"
    loaded = python(code, path=ROOT).split()
    assert "sparsegen" in loaded and len(loaded) <= 30
