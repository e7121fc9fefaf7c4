"""Sparse formats of unstructured 16-bit weights: ``sparse`` encodes, ``load`` reads what ``W.save`` wrote."""

from __future__ import annotations

from sparsegen.formats.bitmap import Bitmap
from sparsegen.formats.encode import FORMATS, sparse
from sparsegen.formats.file import load
from sparsegen.formats.matrix import SparseMatrix
from sparsegen.formats.tca_bme import TcaBme

__all__ = ["FORMATS", "Bitmap", "SparseMatrix", "TcaBme", "load", "sparse"]
