"""The meaning of the op ``spmm``: a dense product, then ``activation(scale * sum + bias) + residual``.

Everything is computed in the type of ``sums``: f32 as the kernels do (in another order), f64 to judge them by.  A zero
of the matrix multiplies too, so that a NaN or an infinity of x reaches every row, as in any dense product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_ACTIVATIONS: Final[dict[str, Callable[[Array], Array]]] = {
    "none": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    # Hendrycks & Gimpel, "Gaussian error linear units", the tanh form
    "gelu": lambda z: z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi).astype(z.dtype) * (z + z.dtype.type(0.044715) * z**3))),
    "silu": lambda z: z / (1 + np.exp(-z)),
}


def run(
    w: Array,
    x: Array,
    bias: Array | None = None,
    scale: Array | None = None,
    residual: Array | None = None,
    activation: str = "none",
    sums: Any = np.float32,
    v: Array | None = None,
) -> Array:
    """``activation(scale * (w @ x) + bias) + residual`` in the dtype ``sums``: w [M, K], x [K, n], the result [M, n].

    ``bias`` and ``scale`` are [M], ``residual`` [M, n]; all may be of 16 bits.  Of a gated pair w, ``v`` what is
    activated is multiplied with ``scale * (v @ x) + bias``; ``bias`` and ``scale`` are [2, M].
    """

    def factor(w: Array, i: int) -> Array:
        y: Array = w.astype(sums) @ x.astype(sums)
        own = [a if a is None or v is None else a[i] for a in (scale, bias)]
        y = y if own[0] is None else y * own[0].astype(sums)[:, None]
        return y if own[1] is None else y + own[1].astype(sums)[:, None]

    with np.errstate(all="ignore"):
        y = _ACTIVATIONS[activation](factor(w, 0))
        y = y if v is None else y * factor(v, 1)
        return y if residual is None else y + residual.astype(sums)
