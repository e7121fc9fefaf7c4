"""What the user's Python files define, and the kernels that the options make of it; results written to files."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sparsegen import files
from sparsegen.cli.common import Args
from sparsegen.ir.errors import ArrayError, SparsegenError, StencilError

if TYPE_CHECKING:
    from sparsegen.dsl.stencil import Stencil
    from sparsegen.dsl.update import Update
    from sparsegen.kernel import Kernel
    from sparsegen.products.product import Product


def default_shape(edge: int, ndim: int) -> tuple[int, ...]:
    """A row, a square or a cube of about ``edge`` x ``edge`` cells."""
    return (round(edge ** (2 / ndim)),) * ndim


def execute(file: str) -> ModuleType:
    """The module that a Python file is, run but not as ``__main__``; StencilError if it cannot be."""
    import importlib.machinery
    import importlib.util

    path, there = Path(file), False
    with contextlib.suppress(OSError, ValueError):  # of a name that is too long, or of other bytes than names have
        path = path.resolve()
        there = path.is_file()
    if not there:
        raise StencilError(f"there is no file {file}", hint="name a Python file, FILE.py or FILE.py:NAME")
    loader = importlib.machinery.SourceFileLoader(f"file_{path.stem}", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    try:
        loader.exec_module(module)
    except SparsegenError:
        raise
    except (Exception, SystemExit) as error:
        raise StencilError(
            f"{file} cannot be run: {type(error).__name__}: {error}", hint=f"try python {file}; --debug shows where"
        ) from error
    return module


def stencils(where: str) -> dict[str, Stencil | Update | Product]:
    """The stencils, updates and products that a Python file defines, by name, in its order.

    ``FILE.py:NAME`` is one of them.  StencilError if the file cannot be run, or defines none of that name.
    """
    from sparsegen.compiler import described_by

    file, _, name = where.partition(":") if not re.match(r"[A-Za-z]:[\\/]", where) else (where, "", "")
    module = execute(file)
    found = {n: v for n, v in vars(module).items() if described_by(v)}
    if name:
        if name not in found:
            raise StencilError(f"{file} defines no stencil {name!r}", hint=f"it defines: {', '.join(found) or 'none'}")
        return {name: found[name]}
    if not found:
        raise StencilError(
            f"{file} defines no stencil and no product",
            hint="make one at its top level, as with @sg.stencil, or p = sg.spmm(W, n=16)",
        )
    return found


def one(where: str) -> Stencil | Update | Product:
    """The only one of a file, or the one that is named."""
    found = stencils(where)
    if len(found) > 1:
        raise StencilError(
            f"{where} defines {len(found)} stencils", hint=f"say which: {where}:NAME of {', '.join(found)}"
        )
    return next(iter(found.values()))


def kernel(
    args: Args, stencil: Stencil | Update | Product, *, backend: str, edge: int, device: str | None = None
) -> Kernel:
    """The kernel that the options describe; ``edge`` is that of a square with as many cells where no shape is given."""
    import sparsegen as sg

    where = device or args.device
    if stencil.ndim == 0:
        if args.shape:
            raise ArrayError("--shape is for stencils: W and n say a product's size", hint="leave --shape away")
        return sg.compile(stencil, (), 1, where, backend, args.schedule, batch=args.batch, shared=args.shared)
    shape = args.shape or default_shape(edge, stencil.ndim)
    return sg.compile(
        stencil, shape, args.steps, where, backend, args.schedule, batch=args.batch, shared=args.shared
    )  # fmt: skip


def write(text: str, out: str | None) -> None:
    """To a file, or to standard output."""
    text = text.rstrip("\n") + "\n"
    if out is not None:
        save(out, text.encode())
    else:
        sys.stdout.write(text)


def save(out: str, data: bytes) -> None:
    """To a file; ArrayError if it cannot be written."""
    files.write(out, [data], ArrayError, streams=True)


def load_array(file: str) -> Any:
    """The array of an .npy file; ArrayError if it holds none, or several."""
    import numpy as np

    try:
        found = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ArrayError(f"cannot read {file}: it holds no array", hint="write it with numpy.save") from error
    if not isinstance(found, np.ndarray):
        raise ArrayError(f"{file} holds several arrays", hint="write one with numpy.save")
    return found


def save_array(file: str, array: Any) -> None:
    """To an .npy file; ArrayError if it cannot be written."""
    import numpy as np

    data = io.BytesIO()
    np.save(data, array)
    save(file, data.getvalue())


def summary(array: Any) -> str:
    """The least, the mean and the largest number of an array."""
    import numpy as np

    numbers = np.asarray(array, np.float64)
    return f"min {numbers.min():.6g}, mean {numbers.mean():.6g}, max {numbers.max():.6g}"
