"""How much smaller than dense: bytes of sparse formats for 16-bit weights, by formula and of real matrices.

The formulas are functions of rows M, columns K and sparsity s, for zeros that fall anywhere with the same probability;
``counted`` is the same of a matrix at hand, and our formats are really encoded there. Sources: SpInfer, section 3
and figure 3 (CSR, Tiled-CSL of Flash-LLM, SparTA, TCA-BME); MACKO's published format (values with deltas of 4 bits).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from sparsegen.formats.bitmap import Bitmap, bitmap
from sparsegen.formats.encode import sparse
from sparsegen.formats.library import NUMPY
from sparsegen.ir.types import f16, s8

TILED_CSL_TILE: Final = 128 * 64  #: elements of a tile
MACKO_GAP: Final = 16  #: columns that a delta of 4 bits goes on, at most


def csr(m: int, k: int, kept: float, excess: float) -> float:
    """Two bytes a value, four its column, four a row."""
    return 6 * kept + 4 * (m + 1)


def tiled_csl(m: int, k: int, kept: float, excess: float) -> float:
    """Two bytes a value, two its place in the tile; four a tile."""
    return 4 * kept + 4 * m * k / TILED_CSL_TILE


def sparta(m: int, k: int, kept: float, excess: float) -> float:
    """A 2:4 matrix (half the values, two bits of metadata each), and what does not fit it as CSR."""
    return 1.125 * m * k + csr(m, k, excess, 0)


def tca_bme(m: int, k: int, kept: float, excess: float) -> float:
    """Two bytes a value, four a group of 64 x 64, eight each of its 64 bitmaps; what fills groups up left out."""
    groups = -(-m // 64) * -(-k // 64)
    return 4 * (groups + 1) + 8 * 64 * groups + 2 * kept


def macko(m: int, k: int, kept: float, excess: float) -> float:
    """Two bytes a value, half a one the columns from the value before to it; four a row.

    A gap of more than 16 columns takes a value of zero every 16.  Gaps are geometric: one in column c goes beyond 16 j
    columns with probability s^(16 j), if c is not nearer than that to where the row begins.
    """
    s = 1 - kept / (m * k)
    padding = sum(s**far * (k - far) for far in range(MACKO_GAP, k, MACKO_GAP)) / k
    return macko_stored(m, kept * (1 + padding))


def macko_stored(m: int, entries: float) -> float:
    """The bytes of so many entries, padding among them."""
    return 2.5 * entries + 4 * (m + 1)


def macko_entries(kept: Any) -> int:
    """The entries of a real matrix, of which ``kept`` [m, k] says what is not zero: values and padding."""
    row, col = kept.nonzero()
    before = np.where(np.diff(row, prepend=-1) == 0, np.concatenate([[-1], col[:-1]]), -1)
    return int(len(col) + ((col - before - 1) // MACKO_GAP).sum())


#: Bitmap tiles whose values are rounded to 8 bits, integers or floats.
NARROW: Final = "bitmap, 8 bits"
#: name -> bytes of an M x K matrix with so many values, of which so many are more than two of four adjacent ones.
FORMULAS: Final[dict[str, Callable[[int, int, float, float], float]]] = {
    "CSR": csr,
    "Tiled-CSL": tiled_csl,
    "SparTA": sparta,
    "TCA-BME": tca_bme,
    "MACKO": macko,
    "bitmap": lambda m, k, kept, excess: bitmap(f16).nbytes((m, k), kept),
    NARROW: lambda m, k, kept, excess: bitmap(s8).nbytes((m, k), kept),
}


def ratio(name: str, m: int, k: int, s: float) -> float:
    """Bytes of the dense matrix over those of the format: 1 is break-even."""
    # Of four elements three are kept with probability 4 (1-s)^3 s, one too many, and all with (1-s)^4, two too many.
    excess = m * k / 4 * (4 * (1 - s) ** 3 * s + 2 * (1 - s) ** 4)
    return 2 * m * k / FORMULAS[name](m, k, (1 - s) * m * k, excess)


def intensity(m: int, n: int, share: float) -> float:
    """Operations per byte of W and x, of a W that takes ``share`` of the bytes of the dense one (equations 7 and 8).

    Of a format that is 1 / CR, its compression ratio; it would be 1 - s, were it free to say where the zeros are.
    """
    return m * n / (m * share + n)


def counted(w: Any) -> dict[str, float]:
    """The ratios of a real matrix, a NumPy array of f16 or bf16 with K a multiple of 4: TCA-BME and ours encoded."""
    m, k = w.shape
    kept = w.view(np.int16) != 0
    excess = int(np.maximum(kept.reshape(-1, 4).sum(-1) - 2, 0).sum())
    stored = {name: FORMULAS[name](m, k, int(kept.sum()), excess) for name in ("CSR", "Tiled-CSL", "SparTA")}
    stored |= {"TCA-BME": sparse(w, "tca_bme").nbytes, "MACKO": macko_stored(m, macko_entries(kept))}
    stored |= {
        "bitmap": sparse(w, "bitmap").nbytes,
        NARROW: Bitmap.encode(bitmap(s8), NUMPY, kept.view(np.int8)).nbytes,
    }
    return {name: 2 * m * k / nbytes for name, nbytes in stored.items()}


def random_weights(m: int, k: int, s: float, seed: int = 0) -> Any:
    """Normal f16 weights of which each is zero with probability s."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((m, k), dtype=np.float32).astype(np.float16)
    w[rng.random((m, k), dtype=np.float32) < s] = 0
    return w
