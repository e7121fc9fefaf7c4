"""The sparse formats by name.  One from outside is added by a call of ``register``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from sparsegen.formats.bitmap import Bitmap, bitmap
from sparsegen.formats.csr import Csr, csr
from sparsegen.formats.format import Format
from sparsegen.formats.matrix import KINDS, SparseMatrix
from sparsegen.formats.tca_bme import tca_bme
from sparsegen.ir.errors import FormatError
from sparsegen.schedule import nearest


@dataclass(frozen=True)
class Maker:
    """``make(dtype, **options)``, its dtypes by their names for users, and the class of its matrices."""

    make: Callable[..., Format]
    dtypes: tuple[str, ...]
    matrix: type[SparseMatrix]

    def spec(self, dtype: str, options: dict[str, Any]) -> Format:
        """The format for a dtype, with options; FormatError for options that it does not have."""
        if dtype not in self.dtypes:
            raise FormatError(
                f"elements of dtype {dtype!r} cannot be encoded", hint=f"use {' or '.join(map(repr, self.dtypes))}"
            )
        try:
            made = self.make(KINDS[dtype], **options)
        except TypeError as e:
            raise FormatError(f"options {options}: {e}", hint="leave them away, or name those of the format") from e
        return replace(made, options=tuple(options.items())) if options else made


FORMATS: Final[dict[str, Maker]] = {}


def register(
    name: str, make: Callable[..., Format], dtypes: tuple[str, ...], matrix: type[SparseMatrix] = SparseMatrix
) -> None:
    """Make ``sparse(w, format=name, **options)`` encode by ``make(dtype, **options)``.

    ``dtypes``: those of the elements that it takes, of "f32", "f16", "bf16", "i16", "i8" and "i4".
    """
    FORMATS[name] = Maker(make, dtypes, matrix)


def found(name: Any) -> Maker:
    """The format of a name; FormatError if there is none."""
    if not isinstance(name, str) or name not in FORMATS:
        raise FormatError(
            f"there is no sparse format {name!r}",
            hint=f"{nearest(str(name), FORMATS)}use one of {', '.join(FORMATS)}, or auto",
        )
    return FORMATS[name]


register("bitmap", bitmap, ("f16", "bf16"), Bitmap)
register("tca_bme", tca_bme, ("f16", "bf16"))
register("csr", csr, ("f32", "f16", "bf16"), Csr)
