"""Sparse formats: ``sparse`` encodes, ``load`` reads what ``W.save`` wrote, ``register`` adds a format."""

from __future__ import annotations

from sparsegen.formats.bcrs import Bcrs
from sparsegen.formats.bitmap import Bitmap
from sparsegen.formats.csr import Csr
from sparsegen.formats.encode import FORMATS, load, register, sparse
from sparsegen.formats.format import Format
from sparsegen.formats.hybrid import Hybrid
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.nm import Nm
from sparsegen.formats.sr_bcrs import SrBcrs
from sparsegen.formats.stats import Stats

__all__ = ["FORMATS", "Bcrs", "Bitmap", "Csr", "Format", "Hybrid", "Nm", "SparseMatrix", "SrBcrs", "Stats"]
__all__ += ["load", "register", "sparse"]
