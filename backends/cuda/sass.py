"""Looking at device code: SASS through nvdisasm or cuobjdump, and counts of its instructions."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from sparsegen.backends.cuda.toolchain import require_tool
from sparsegen.ir.errors import ToolchainError

_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)")
_FUNCTION = re.compile(r"^\s*(?:Function : (\S+)|\.text\.([^\s:]+):)")


def disassemble(cubin: bytes, *, timeout: float = 60.0) -> str:
    """The SASS of a cubin as text, from nvdisasm or else cuobjdump.

    Raises ToolchainError if neither is found (naming the wheel to install) or if the cubin is not one.
    """
    tool = require_tool("nvdisasm", "cuobjdump")
    flags = ["-c"] if tool.name == "nvdisasm" else ["-sass"]
    with tempfile.TemporaryDirectory(prefix="sparsegen-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [str(tool.path), *flags, str(path)], capture_output=True, text=True, errors="replace", timeout=timeout
            )
        except (OSError, subprocess.TimeoutExpired) as e:
            raise ToolchainError(f"cannot run {tool.path}: {e}", hint="check the installation of the toolkit") from e
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ToolchainError(
            f"{tool.name} failed (exit status {done.returncode}): {lines[0] if lines else 'no output'}",
            hint="a disassembler older than the nvcc that made the cubin cannot read it: take both from one toolkit",
        )
    return done.stdout


def split_functions(sass: str) -> dict[str, str]:
    """The SASS of each function by its name, from the text of either tool."""
    parts: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in sass.splitlines():
        if m := _FUNCTION.match(line):
            current = parts.setdefault(m[1] or m[2], [])
        elif current is not None:
            current.append(line)
    return {name: "\n".join(lines) for name, lines in parts.items()}


def count_mnemonics(sass: str, *, full: bool = False) -> Counter[str]:
    """How often each instruction stands in the text (not how often it runs): ``{"DMMA": 26, "LDG": 4, ...}``.

    ``full`` keeps the modifiers, as in ``LDG.E.64``. Instructions that cannot be reached are counted too.
    """
    names = (m[1] for line in sass.splitlines() if (m := _INSTRUCTION.match(line)))
    return Counter(name if full else name.split(".", 1)[0] for name in names)
