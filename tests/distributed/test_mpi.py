"""Ranks that talk through MPI: the same numbers, and what is said where one differs or stands still."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("mpi4py", reason="mpi4py is not installed")
WORKER = Path(__file__).parent / "mpi_worker.py"
#: That of the MPI that mpi4py was installed with, where it came as a wheel.
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")


def started(folder: Path, what: str) -> subprocess.CompletedProcess[str]:
    assert MPIEXEC, "mpi4py without mpiexec"
    command = [MPIEXEC, "-n", "2", sys.executable, "-m", "mpi4py", str(WORKER), str(folder), what]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_processes_make_the_numbers_of_one(tmp_path: Path) -> None:
    done = started(tmp_path, "numbers")
    assert done.returncode == 0 and done.stdout.count("equal") == 2, done.stdout + done.stderr


def test_ranks_that_differ_or_stand_still(tmp_path: Path) -> None:
    """``-m mpi4py`` ends all ranks where one has an error."""
    done = started(tmp_path, "differ")
    assert done.returncode and done.stdout.count("told") == 2, done.stdout + done.stderr
    assert "rank 0 of mesh 2 lost another one during an exchange of halos: nothing came within 1 s" in done.stderr
