"""What the cost model says of a layer, dense and sparse, and what a GPU says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import median
from typing import Any

import torch

from sparsegen.choose import Request, choose
from sparsegen.compiler import described
from sparsegen.cost.devices import DeviceProfile
from sparsegen.formats.encode import found
from sparsegen.formats.matrix import NAMES, SparseMatrix
from sparsegen.products.product import spmm
from sparsegen.torch.linear import SparseLinear
from sparsegen.torch.plan import empty
from sparsegen.torch.prune import DTYPES
from sparsegen.torch.quantized import QuantizedLinear

#: Calls that are timed; bytes that are written before each, several times what L2 has, and how often: some 80 us each.
_REPEATS, _COLD_BYTES, _COLD_WRITES = 11, 256 << 20, 3


@lru_cache(maxsize=1024)
def dense_time(shape: tuple[int, int], dtype: Any, tokens: int, profile: DeviceProfile) -> float:
    """Seconds of the product of a dense matrix [M, K]: they depend on no weight."""
    w = empty(found("nm").spec(NAMES[DTYPES[dtype]], {}), shape, torch.device("cpu"))
    problem, request = described(spmm(w, n=tokens), (), None, "any", listing=True)
    return next(cost.time for cost in problem.options(None, profile, request).costs if cost.schedule.family == "dense")


def sparse_times(layer: Any, tokens: Sequence[int], profile: DeviceProfile) -> dict[int, float]:
    """Seconds of a sparse layer's product, as it would run, by numbers of tokens."""
    w, more = _matrix(layer)
    products = {n: replace(spmm(w, n=n, bias=layer.bias is not None, **more), columns=True) for n in tokens}
    asked = {n: described(product, (), None, "any", listing=True)[0] for n, product in products.items()}
    return {n: float(choose(problem, profile, "auto", Request()).cost.time) for n, problem in asked.items()}


def _matrix(layer: SparseLinear | QuantizedLinear) -> tuple[SparseMatrix, dict[str, Any]]:
    """The matrix of a layer, and what its products are told besides."""
    if isinstance(layer, SparseLinear):
        return layer._bound().matrix, {}
    w = layer._plan.at(*(layer._buffers[name] for name in layer._parts)).matrix
    return w, {"scale": True, "x_dtype": "i8", "y_dtype": "f16"}


def measured(layer: Any, tokens: Sequence[int], dtype: Any) -> dict[int, float]:
    """Seconds of a call on a GPU with cold L2 by numbers of tokens, the median of some; elsewhere nothing.

    What makes L2 cold takes longer than the host takes to launch the layer, so no launch is waited for.
    """
    device = next(layer.buffers()).device
    found: dict[int, float] = {}
    if device.type != "cuda":
        return found
    if isinstance(layer, SparseLinear):
        layer.prepare(tokens)  # all at once, where calls would build one after another
    with torch.no_grad(), torch.cuda.device(device):
        other = torch.empty(_COLD_BYTES, dtype=torch.uint8, device=device)
        for n in tokens:
            x = torch.ones(n, layer.in_features, device=device, dtype=dtype)
            layer(x)  # builds its kernel
            events = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(_REPEATS)]
            for start, stop in events:
                for _ in range(_COLD_WRITES):
                    other.zero_()
                start.record()
                layer(x)
                stop.record()
            torch.cuda.synchronize(device)
            found[n] = median(start.elapsed_time(stop) for start, stop in events) * 1e-3
    return found
