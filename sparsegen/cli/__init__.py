# PYTHON_ARGCOMPLETE_OK: argcomplete's global completion, where a user has it on, looks for this word
"""The command line: what the Python interface does, for files.  Nothing heavy is imported before a command runs.

``options`` registers every command with its options; ``explain``, ``kernels``, ``programs``, ``tools`` hold the work;
``files`` loads the user's Python files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sparsegen.cli.common import FOUND, LEVELS, OK, SUITES, WRONG
from sparsegen.cli.files import stencils
from sparsegen.cli.options import parser
from sparsegen.ir.errors import SparsegenError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what could follow
        from sparsegen.cli.completion import answer

        answer(parser())
    top = parser()
    if not (sys.argv[1:] if argv is None else argv):  # what there is tells more than that a command is missing
        top.print_help(sys.stderr)
        return WRONG
    args = top.parse_args(argv)
    try:
        status: int = args.act(args)
        sys.stdout.flush()
        return status
    except SparsegenError as error:
        if args.debug:
            raise
        if error.loc is not None and _is_ours(error.loc.file):
            error.loc = None  # the line of the command itself says nothing
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return WRONG
    except BrokenPipeError:  # as in: sparsegen gen … | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _is_ours(file: str) -> bool:
    package = Path(__file__).resolve().parent.parent
    return file.startswith("<frozen") or Path(file).resolve() in {
        Path(sys.argv[0]).resolve(),
        package / "__main__.py",
    }


__all__ = ["FOUND", "LEVELS", "OK", "SUITES", "WRONG", "SparsegenError", "main", "parser", "stencils"]
