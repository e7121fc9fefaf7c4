"""Completion on TAB: argcomplete's protocol, asked of the command in a process of its own, and bash itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparsegen.bench.tables import PARTS
from sparsegen.cli import SUITES
from sparsegen.cli.completion import SHELLS
from sparsegen.cost.devices import names
from sparsegen.ir.passes import pass_names
from sparsegen.registry import families, operations
from tests.cli.test_cli import ROOT, run


def completed(folder: Path, line: str) -> set[str]:
    """What a shell is offered at the end of a line."""
    answer = folder / "answer"
    env = {
        **os.environ, "PYTHONPATH": str(ROOT), "COMP_LINE": line, "COMP_POINT": str(len(line.encode())),
        "COMP_TYPE": "63", "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "sparsegen"], cwd=folder, env=env, text=True, capture_output=True)
    assert done.returncode == 0 and not done.stdout + done.stderr
    return {word.rstrip() for word in answer.read_text().splitlines()}


def test_commands_and_options(tmp_path: Path) -> None:
    assert {"explain", "gen", "run", "check", "bench", "devices", "opt", "cache", "--version"} <= completed(
        tmp_path, "sparsegen "
    )
    assert completed(tmp_path, "sparsegen gen heat.py --s") == {"--shape", "--steps", "--schedule", "--shared"}
    assert completed(tmp_path, "sparsegen gen heat.py --level s") == {"sass"}


def test_devices_suites_and_parts(tmp_path: Path) -> None:
    assert completed(tmp_path, "sparsegen explain heat.py --device ") >= {"auto", *names()}
    assert completed(tmp_path, "sparsegen bench --suite ") == {*SUITES}
    assert completed(tmp_path, "sparsegen bench --suite nm --part ") == {*PARTS["nm"]}
    assert completed(tmp_path, "sparsegen bench --part ") == {part for parts in PARTS.values() for part in parts}


def test_families_and_then_their_words(tmp_path: Path) -> None:
    assert completed(tmp_path, "sparsegen gen heat.py --schedule ") == {
        "auto", *(name for op in operations() for name in families(op))
    }  # fmt: skip
    words = completed(tmp_path, 'sparsegen gen heat.py --schedule "stencil2row fuse=2 mm')
    assert words == {"stencil2row fuse=2 mma="}


def test_passes_one_after_the_other(tmp_path: Path) -> None:
    assert completed(tmp_path, "sparsegen opt -p direct,") == {f"direct,{name}" for name in pass_names()}


def test_files_that_a_command_reads(tmp_path: Path) -> None:
    for name in ("heat.py", "heat.sgir", "heat.txt"):
        (tmp_path / name).touch()
    assert completed(tmp_path, "sparsegen check heat") == {"heat.py"}
    assert completed(tmp_path, "sparsegen run heat") == {"heat.py", "heat.sgir"}
    assert completed(tmp_path, "sparsegen check heat.py --shape ") == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_lines_to_read(shell: str, tmp_path: Path) -> None:
    assert "sparsegen" in run(tmp_path, "completion", shell).stdout
    assert "source" in run(tmp_path, "completion", "--help").stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_reads_them(tmp_path: Path) -> None:
    """The words that bash shows, by the function that it calls on TAB."""
    command = tmp_path / "sparsegen"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m sparsegen "$@"\n')
    command.chmod(0o755)
    script = """
        eval "$(sparsegen completion bash)"
        COMP_LINE="sparsegen devi"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; COMP_WORDS=(sparsegen devi); COMP_CWORD=1
        on_tab=$(complete -p sparsegen | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        $on_tab sparsegen devi sparsegen
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, text=True, capture_output=True)
    assert done.stdout.split() == ["devices"], done.stderr
