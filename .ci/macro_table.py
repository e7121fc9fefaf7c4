"""Writes tests/cuda_print/macros.txt: the macros of the headers that printed CUDA includes, by the nvcc that is here.

A name that begins with ``_`` is never a user's, so it is left out.  ``--check`` lists those that a user may still have.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sparsegen.backends.cuda.nvcc import find_nvcc  # noqa: E402
from sparsegen.backends.cuda.printer import INCLUDES  # noqa: E402
from sparsegen.ir.symbols import reserved  # noqa: E402

TARGET = ROOT / "tests" / "cuda_print" / "macros.txt"
TEMPLATES = ROOT / "backends" / "cuda" / "templates"


def macros() -> list[str]:
    """Their names, of the host's and the device's view, with GNU's extensions and without."""
    texts = [file.read_text(encoding="utf-8") for file in TEMPLATES.iterdir()]
    named = {name for text in texts for name in re.findall(r"#include <([\w.]+)>", text)}
    source = "".join(f"#include <{name}>\n" for name in sorted(named | set(INCLUDES.values())))
    found: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "headers.cu"
        file.write_text(source)
        for view in ("-D__CUDA_ARCH__=900", "-U__CUDA_ARCH__"):
            for standard in ("-std=c++17", "-Xcompiler=-std=gnu++17"):
                command = [str(find_nvcc().path), "-x", "cu", "-E", "-Xcompiler", "-dM", standard, view, str(file)]
                text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found |= set(re.findall(r"^#define ([A-Za-z]\w*)", text, re.MULTILINE))
    return sorted(found)


def main() -> int:
    if "--check" in sys.argv:
        missed = [name for name in macros() if not reserved(name)]
        print("\n".join(missed))
        return min(1, len(missed))
    TARGET.write_text("\n".join(macros()) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
