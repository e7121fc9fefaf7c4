"""A decoder layer of OPT-13B's sizes with pruned weights: dense against sparse, for 1, 8 and 16 tokens.

    python examples/decoder_layer.py                             # a small layer on the emulator
    python examples/decoder_layer.py --picture layer.png         # on a GPU, with torch: 5120 wide, ffn 20480

Random weights, most of them zero.  The tokens are the next ones of as many texts; attention reads the earlier ones of
each from a cache.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a bare checkout needs no installation

import numpy as np
from _show import draw, options

import sparsegen as sg

TOKENS = (1, 8, 16)
REPEATS = 21
LARGEST_ERROR = 5e-3  # of a layer in f16, against f64
Call = Callable[..., Any]


def torch_with_gpu() -> Any:
    """torch if it reaches a GPU, else None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


# ------------------------------------------------------------------------------------------------------- the layer
@dataclass
class Linear:
    """``activation(w x + bias) + residual`` of tokens x [n, in]: by the library on its arrays, or by our kernel."""

    w: Any  # [out, in]
    bias: Any
    activation: Any = None
    residual: bool = False

    def dense(self, x: Any, residual: Any = None) -> Any:
        if isinstance(x, np.ndarray):
            y = x @ self.w.T + self.bias
        else:
            y = sys.modules["torch"].nn.functional.linear(x, self.w, self.bias)
        if self.activation == "relu":
            y = y.clip(0)
        return y if residual is None else y + residual

    def product(self, encoded: Any, n: int) -> Any:
        return sg.spmm(encoded, n, bias=True, activation=self.activation, residual=self.residual)

    def sparse(self, k: Any) -> Call:
        # The kernel's x is [in, n]: the transpose of the tokens, which it takes as it is.
        if self.residual:
            return lambda x, residual: k(x.T, bias=self.bias, residual=residual.T).T
        return lambda x: k(x.T, bias=self.bias).T


def norm(x: Any) -> Any:
    d = x - x.mean(axis=-1, keepdims=True)
    return d / ((d * d).mean(axis=-1, keepdims=True) + 1e-5) ** 0.5


def attention(xp: Any, qkv: Any, cache: Any, head: int) -> Any:
    """Each text's new token (its q, k and v, [n, 3 hidden]) over the text's cache [2, n, tokens, hidden], its end."""
    n, width = qkv.shape
    hidden = width // 3
    cache[:, :, -1] = qkv[:, hidden:].reshape(n, 2, hidden).swapaxes(0, 1)
    keys, values = cache.reshape(2, n, -1, hidden // head, head)
    scores = xp.einsum("nhd,nthd->nht", qkv[:, :hidden].reshape(n, -1, head), keys) / head**0.5
    weights = xp.exp(scores - xp.amax(scores, axis=-1, keepdims=True))
    mixed = xp.einsum("nht,nthd->nhd", weights / weights.sum(axis=-1, keepdims=True), values)
    return mixed.reshape(n, hidden)


def decode(xp: Any, x: Any, linear: Mapping[str, Call], cache: Any, head: int) -> Any:
    """The layer: x [n, hidden] -> [n, hidden]."""
    x = linear["out"](attention(xp, linear["qkv"](norm(x)), cache, head), x)
    return linear["fc2"](linear["fc1"](norm(x)), x)


# --------------------------------------------------------------------------------------------------------- its time
def seconds(torch: Any, call: Callable[[], Any], cold: Any) -> float:
    """Median time of a call in a CUDA graph, after reading ``cold``, which is larger than L2."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(REPEATS):
        cold.sum()
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) * 1e-3)
    return statistics.median(times)


def measured(torch: Any, x: Any, way: Mapping[str, Call], cache: Any, head: int, cold: Any) -> dict[str, float]:
    """Seconds of the layer ("all"), and of each of its parts alone."""
    qkv, inner = way["qkv"](x), way["fc1"](x)
    given = {"qkv": (x,), "out": (x, x), "fc1": (x,), "fc2": (inner, x)}
    times = {name: seconds(torch, lambda name=name: way[name](*given[name]), cold) for name in given}
    times["rest"] = seconds(torch, lambda: (norm(x), attention(torch, qkv, cache, head), norm(x)), cold)
    return times | {"all": seconds(torch, lambda: decode(torch, x, way, cache, head), cold)}


def predicted(products: Mapping[str, Any], family: str) -> dict[str, float]:
    """What the cost model says of the four products on an H200."""
    ranked = {name: sg.schedules(product, device="h200") for name, product in products.items()}
    times = {name: next(c.time for c in costs if c.schedule.family == family) for name, costs in ranked.items()}
    return times | {"all": sum(times.values())}


# ------------------------------------------------------------------------------------------------------------- main
def main(argv: Sequence[str] | None = None, encode: Callable[[Any], Any] = sg.sparse) -> int:
    """1 where the sparse layer's result is not the dense one's."""
    torch = torch_with_gpu()
    xp, width, past = (torch, 5120, 512) if torch else (np, 64, 16)
    args = options(__doc__, hidden=width, past=past, sparsity=60).parse_args(argv)
    hidden, head, rng = args.hidden, math.gcd(128, args.hidden), np.random.default_rng()

    def array(a: Any) -> Any:
        return torch.from_numpy(a.astype(np.float16)).cuda() if torch else a.astype(np.float16)

    def exactly(a: Any) -> Any:
        return a.double() if torch else a.astype(np.float64)

    def linear(rows: int, cols: int, activation: Any = None, residual: bool = False) -> Linear:
        kept = rng.random((rows, cols), np.float32) >= args.sparsity / 100
        w = rng.standard_normal((rows, cols), np.float32) / max(1, kept.mean() * cols) ** 0.5
        return Linear(array(np.where(kept, w, 0)), array(rng.standard_normal(rows) / 8), activation, residual)

    layer = {
        "qkv": linear(3 * hidden, hidden),
        "out": linear(hidden, hidden, residual=True),
        "fc1": linear(4 * hidden, hidden, "relu"),
        "fc2": linear(hidden, 4 * hidden, residual=True),
    }
    encoded = {name: encode(each.w) for name, each in layer.items()}
    dense = {name: each.dense for name, each in layer.items()}
    exact = {name: Linear(exactly(e.w), exactly(e.bias), e.activation).dense for name, e in layer.items()}
    large = 2 * sum(each.w.shape[0] * each.w.shape[1] for each in layer.values())
    small = sum(w.nbytes for w in encoded.values())
    where = torch.cuda.get_device_name() if torch else "the emulator: times are what the cost model says of an H200"
    print(f"hidden {hidden}, ffn {4 * hidden}, {args.past} cached tokens, {args.sparsity} % zeros; on {where}")
    print(f"weights: {large / 1e6:.3g} MB dense, {small / 1e6:.3g} MB sparse ({large / small:.2f} times less)\n")
    print("tokens   dense, us   sparse, us   faster   error: dense    sparse")

    target = {"backend": "cuda"} if torch else {"device": "h200", "backend": "emulator"}
    cold = torch.ones(1 << 26, device="cuda") if torch else None
    bars: dict[str, dict[str, float]] = {}
    worst = 0.0
    for n in TOKENS:
        products = {name: layer[name].product(w, n) for name, w in encoded.items()}
        sparse = {name: layer[name].sparse(sg.compile(product, **target)) for name, product in products.items()}
        x, cache = array(rng.standard_normal((n, hidden))), array(rng.standard_normal((2, n, args.past, hidden)))
        want = decode(xp, exactly(x), exact, exactly(cache), head)
        errors = []
        for name, way, family in (("dense", dense, "dense"), ("sparse", sparse, "bitmap")):
            off = exactly(decode(xp, x, way, cache, head)) - want
            errors.append(float((off * off).sum() / (want * want).sum()) ** 0.5)
            times = measured(torch, x, way, cache, head, cold) if torch else predicted(products, family)
            bars[f"{name}, {n}"] = times
        slow, fast = (1e6 * bars[f"{name}, {n}"]["all"] for name in ("dense", "sparse"))
        print(f"{n:6}   {slow:9.1f}   {fast:10.1f}   {slow / fast:6.2f}   {errors[0]:12.1e}   {errors[1]:7.1e}")
        worst = max(worst, errors[1]) if errors[1] == errors[1] else np.inf
    print("\nwhere the time goes, us" + (", each part alone with cold L2 (rest: attention and norms)" if torch else ""))
    for title, times in bars.items():
        print(f"  {title:10} " + ", ".join(f"{name} {1e6 * time:.1f}" for name, time in times.items() if name != "all"))

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        ends = np.zeros(len(bars))
        for name in [name for name in next(iter(bars.values())) if name != "all"]:
            width = np.array([1e6 * times[name] for times in bars.values()])
            axes.barh(list(bars), width, left=ends, label=name)
            ends += width
        axes.invert_yaxis()
        axes.set(xlabel="µs" if torch else "µs, by the cost model", title=f"hidden {hidden}, {args.sparsity} % zeros")
        figure.legend(loc="outside right upper")

    draw(args.picture, paint)
    if not worst <= LARGEST_ERROR:
        print("the sparse layer is wrong")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
