"""Calling nvcc: one CUDA C++ source in, one cubin out, with what ptxas says about registers, spills and memory."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from sparsegen.backends.cuda.resources import KernelResources, parse_ptxas_log
from sparsegen.backends.cuda.toolchain import Tool, require_tool
from sparsegen.ir.errors import ToolchainError

_ARCH = re.compile(r"sm_(\d+)([af]?)")
_ERROR_LINE = re.compile(r"error|fatal", re.IGNORECASE)
#: Variables from which nvcc (nvcc.profile among it), its programs and host compilers take flags, folders and programs.
ENVIRONMENT = (
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "NV_NVVM_VERSION", "CUDAFE_FLAGS", "NVVM_FLAGS",
    "OCG_FLAGS", "PTXAS_FLAGS", "INCLUDES", "SYSTEM_INCLUDES", "LIBRARIES", "CPATH", "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH", "CL", "_CL_", "INCLUDE", "SOURCE_DATE_EPOCH",
)  # fmt: skip
BASE_FLAGS = ("-std=c++17", "-Xptxas=-v")


@dataclass(frozen=True)
class CompileResult:
    """What nvcc made of one source.

    ``cubin`` is the device code, ``ptx`` the PTX it came from (None if not asked for), ``log`` all that nvcc printed,
    ``seconds`` the wall time of nvcc, ``resources`` one entry a kernel, ``cached`` whether nvcc was not run at all.
    """

    cubin: bytes
    ptx: str | None
    log: str
    seconds: float
    resources: dict[str, KernelResources] = field(default_factory=dict)
    cached: bool = False


@dataclass(frozen=True)
class Nvcc:
    """An nvcc that runs: its place, release (such as ``13.0``), full version, and the sm numbers it can make."""

    tool: Tool
    release: str
    version: str
    archs: tuple[int, ...]

    @property
    def path(self) -> Path:
        return self.tool.path


def _run(command: list[str], *, cwd: Path | None, timeout: float) -> tuple[int, str]:
    """Run ``command`` in its own process group; (exit status, output). Past ``timeout`` seconds the group is killed."""
    environment = dict(os.environ)
    if cwd is not None:
        environment["TMPDIR"] = str(cwd)
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as e:
        raise ToolchainError(f"cannot run {command[0]}: {e}", hint="check that the program is executable") from e
    try:
        output, _ = process.communicate(timeout=timeout)
    except BaseException as e:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.communicate()
        if isinstance(e, subprocess.TimeoutExpired):
            return -1, f"killed after {timeout:g} s"
        raise
    return process.returncode, output


@lru_cache(maxsize=8)
def _probe(tool: Tool, mtime: float) -> Nvcc:
    status, text = _run([str(tool.path), "--version"], cwd=None, timeout=60)
    release = re.search(r"release (\d+\.\d+)(?:, V([\d.]+))?", text)
    if status != 0 or release is None:
        raise ToolchainError(
            f"{tool.path} does not answer --version: {text.strip()[:200]}", hint="reinstall the CUDA toolkit"
        )
    _, codes = _run([str(tool.path), "--list-gpu-code"], cwd=None, timeout=60)
    archs = tuple(sorted({int(n) for n in re.findall(r"^sm_(\d+)", codes, re.MULTILINE)}))
    return Nvcc(tool, release[1], release[2] or release[1], archs)


def find_nvcc() -> Nvcc:
    """The nvcc to use (PATH, CUDA_HOME, CUDA_PATH, NVIDIA's wheels); ToolchainError if there is none."""
    tool = require_tool("nvcc")
    return _probe(tool, tool.path.stat().st_mtime)


def check_arch(arch: str, nvcc: Nvcc) -> None:
    """Refuse an ``arch`` (such as ``sm_90a``) that is malformed or that ``nvcc`` cannot make: ToolchainError."""
    parts = _ARCH.fullmatch(arch)
    if parts is None:
        raise ToolchainError(f"unknown arch {arch!r}", hint="write it as sm_80, sm_89 or sm_90a")
    number, suffix = int(parts[1]), parts[2]
    if suffix and number < 90:
        raise ToolchainError(
            f"arch {arch!r} does not exist: the suffix {suffix!r} begins with sm_90", hint=f"use sm_{number}"
        )
    if nvcc.archs and number not in nvcc.archs:
        low, high = nvcc.archs[0], nvcc.archs[-1]
        reason = f"it starts at sm_{low}" if number < low else f"it ends at sm_{high}" if number > high else "unknown"
        hint = (
            f"choose a device of sm_{low} or newer, or put an older nvcc first on PATH"
            if number < low
            else f"install a newer CUDA toolkit, or choose one of {', '.join(f'sm_{a}' for a in nvcc.archs)}"
        )
        raise ToolchainError(f"nvcc {nvcc.release} cannot compile for {arch}: {reason}", hint=hint)


def command_line(nvcc: Nvcc, arch: str, options: tuple[str, ...]) -> list[str]:
    """The nvcc call without file names: the same for the same (nvcc, arch, options), so it can be part of a key."""
    virtual = arch.replace("sm_", "compute_")
    return [str(nvcc.path), "-cubin", f"-gencode=arch={virtual},code={arch}", *BASE_FLAGS, *options]


def _failure(status: int, log: str, command: list[str], source: str) -> ToolchainError:
    kept = Path(tempfile.mkdtemp(prefix="sparsegen-nvcc-"))
    (kept / "kernel.cu").write_text(source, encoding="utf-8")
    (kept / "nvcc.log").write_text(shlex.join(command) + "\n" + log, encoding="utf-8")
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    first = next((line for line in lines if _ERROR_LINE.search(line)), lines[0] if lines else "no output")
    what = f"nvcc took too long: {log}" if status == -1 else f"nvcc failed (exit status {status}): {first}"
    if "preprocess host compiler" in log or re.search(r"(gcc|g\+\+|cc1plus).*(not found|No such file)", log):
        hint = f"nvcc needs a host C++ compiler (g++) on PATH; the source is kept in {kept / 'kernel.cu'}"
    elif "unsupported GNU version" in log:
        hint = f"this g++ is too new for this nvcc: pass -ccbin with an older one; source in {kept / 'kernel.cu'}"
    elif status == -1:
        hint = f"unroll less, use a smaller tile, or raise the timeout; the source is kept in {kept / 'kernel.cu'}"
    else:
        hint = f"the source is kept in {kept / 'kernel.cu'}, all of the output in {kept / 'nvcc.log'}"
    return ToolchainError(what, hint=hint)


def compile_cubin(
    source: str, arch: str, *, options: tuple[str, ...] = (), want_ptx: bool = False, timeout: float = 300.0
) -> CompileResult:
    """Compile CUDA C++ ``source`` for ``arch`` (such as ``sm_90a``) with nvcc; nothing is cached.

    ``options`` are further nvcc flags; ``want_ptx`` keeps the PTX of the same run; ``timeout`` is in seconds.
    Raises ToolchainError: no nvcc, an arch it cannot make, a source it refuses (first error line, the source kept).
    """
    nvcc = find_nvcc()
    check_arch(arch, nvcc)
    command = command_line(nvcc, arch, options)
    folder = Path(tempfile.mkdtemp(prefix="sparsegen-"))
    try:
        (folder / "kernel.cu").write_text(source, encoding="utf-8")
        keep = ["--keep", "--keep-dir", "."] if want_ptx else []
        full = [*command, *keep, "-o", "kernel.cubin", "kernel.cu"]
        start = time.perf_counter()
        status, log = _run(full, cwd=folder, timeout=timeout)
        seconds = time.perf_counter() - start
        output = folder / "kernel.cubin"
        if status != 0 or not output.is_file():
            raise _failure(status, log, full, source)
        ptx = (folder / "kernel.ptx").read_text() if want_ptx else None
        return CompileResult(output.read_bytes(), ptx, log, seconds, parse_ptxas_log(log))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
