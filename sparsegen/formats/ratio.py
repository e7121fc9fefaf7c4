"""How much smaller than dense: bytes of sparse formats for 16-bit weights, by formula and of real matrices.

The formulas are functions of rows M, columns K and sparsity s, for zeros that fall anywhere with the same probability;
``counted`` is the same of a matrix at hand, and our two formats are really encoded there. Source: SpInfer, section 3
and figure 3 (CSR, Tiled-CSL of Flash-LLM, SparTA, TCA-BME).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from sparsegen.formats.bitmap import bitmap
from sparsegen.formats.encode import sparse
from sparsegen.ir.errors import SparsegenError
from sparsegen.ir.types import f16

TILED_CSL_TILE: Final = 128 * 64  #: elements of a tile


def csr_bytes(m: int, nnz: float) -> float:
    """Two bytes a value, four its column, four a row."""
    return 6 * nnz + 4 * (m + 1)


def tiled_csl_bytes(m: int, k: int, nnz: float) -> float:
    """Two bytes a value, two its place in the tile; four a tile."""
    return 4 * nnz + 4 * m * k / TILED_CSL_TILE


def sparta_bytes(m: int, k: int, excess: float) -> float:
    """A 2:4 matrix (half the values, two bits of metadata each), and what does not fit it as CSR."""
    return 1.125 * m * k + csr_bytes(m, excess)


def _csr(m: int, k: int, s: float) -> float:
    return csr_bytes(m, (1 - s) * m * k)


def _tiled_csl(m: int, k: int, s: float) -> float:
    return tiled_csl_bytes(m, k, (1 - s) * m * k)


def _sparta(m: int, k: int, s: float) -> float:
    # Of four elements three are kept with probability 4 (1-s)^3 s, one too many, and all with (1-s)^4, two too many.
    return sparta_bytes(m, k, m * k / 4 * (4 * (1 - s) ** 3 * s + 2 * (1 - s) ** 4))


def _tca_bme(m: int, k: int, s: float) -> float:
    groups = -(-m // 64) * -(-k // 64)
    return 4 * (groups + 1) + 8 * 64 * groups + 2 * (1 - s) * m * k


def _bitmap(m: int, k: int, s: float) -> float:
    return bitmap(f16).nbytes((m, k), (1 - s) * m * k)


#: name -> bytes of an M x K matrix of sparsity s (0 to 1).
FORMULAS: Final[dict[str, Callable[[int, int, float], float]]] = {
    "CSR": _csr,
    "Tiled-CSL": _tiled_csl,
    "SparTA": _sparta,
    "TCA-BME": _tca_bme,
    "bitmap": _bitmap,
}


def ratio(name: str, m: int, k: int, s: float) -> float:
    """Bytes of the dense matrix over those of the format: 1 is break-even."""
    return 2 * m * k / FORMULAS[name](m, k, s)


def counted(w: Any) -> dict[str, float]:
    """The ratios of a real matrix, a NumPy array of f16 or bf16 with K a multiple of 4: TCA-BME and ours encoded."""
    m, k = w.shape
    kept = w.view(np.int16) != 0
    nnz = int(kept.sum())
    excess = int(np.maximum(kept.reshape(-1, 4).sum(-1) - 2, 0).sum())
    stored = {
        "CSR": csr_bytes(m, nnz),
        "Tiled-CSL": tiled_csl_bytes(m, k, nnz),
        "SparTA": sparta_bytes(m, k, excess),
        "TCA-BME": sparse(w, "tca_bme").nbytes,
        "bitmap": sparse(w, "bitmap").nbytes,
    }
    return {name: 2 * m * k / nbytes for name, nbytes in stored.items()}


def random_weights(m: int, k: int, s: float, seed: int = 0) -> Any:
    """Normal f16 weights of which each is zero with probability s."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((m, k), dtype=np.float32).astype(np.float16)
    w[rng.random((m, k), dtype=np.float32) < s] = 0
    return w


def figure(path: str | os.PathLike[str], shape: tuple[int, int] = (4096, 4096)) -> None:
    """Draw the ratios over the sparsity: lines from the formulas, markers from random matrices of ``shape``.

    Needs matplotlib; the suffix of ``path`` says which kind of file it is.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise SparsegenError("the picture needs matplotlib", hint="pip install 'sparsegen[plot]'") from e
    fig = Figure(figsize=(7, 4.5), layout="constrained")
    axes = fig.add_subplot()
    line = np.linspace(0, 0.9, 91)
    marks = [s / 10 for s in range(1, 10)]
    real = [counted(random_weights(*shape, s)) for s in marks]
    for at, name in enumerate(FORMULAS):
        axes.plot(100 * line, [ratio(name, *shape, s) for s in line], color=f"C{at}", label=name)
        axes.plot([100 * s for s in marks], [found[name] for found in real], "o", color=f"C{at}", markersize=4)
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    axes.set(
        xlabel="sparsity / %", ylabel="dense bytes / stored bytes", yscale="log",
        title=f"{shape[0]}×{shape[1]}, 16-bit weights: formulas (lines), real matrices (points)",
    )  # fmt: skip
    axes.set_yticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    axes.set_yticks([], minor=True)
    axes.grid(alpha=0.3)
    axes.legend()
    fig.savefig(path, dpi=150)
