"""What the tests of sparse attention share: random masks and arrays, calls, and what a result may differ by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import sparsegen as sg
from sparsegen.cost.devices import DeviceProfile, load_profile
from sparsegen.ir.warp import Func
from sparsegen.pipelines import Program, lower
from sparsegen.problems.attention import AttentionProblem
from sparsegen.products.attention import Attention
from sparsegen.products.weights import host_arrays
from sparsegen.schedule import AttentionSchedule

Array = npt.NDArray[Any]


def mask(m: int, n: int, height: int = 8, share: float = 0.3, seed: int = 0) -> Array:
    """A random mask of whole vectors; queries of the second vector see nothing, those of the third everything."""
    kept = np.random.default_rng(seed).random((-(-m // height), n)) < share
    if len(kept) > 3:
        kept[1], kept[2] = False, True
    return kept.repeat(height, 0)[:m]


def inputs(what: Attention, seed: int = 1, extreme: bool = False) -> dict[str, Any]:
    """Random arrays of a call; ``extreme``: integers of the whole range, and scores beyond any exponential."""
    rng = np.random.default_rng(seed)
    (m, n), given = what.pattern.shape, dict[str, Any]()
    for name, rows in (("q", m), ("k", n), ("v", n)):
        drawn = rng.standard_normal((*what.lead, rows, what.d))
        if not what.quantized:
            given[name] = (drawn * (60 if extreme else 1)).astype(np.float16)
            continue
        small = np.clip(np.rint(drawn * 32), -127, 127)
        given[name] = (rng.integers(-128, 128, drawn.shape) if extreme else small).astype(np.int8)
        given[f"{name}_scale"] = np.full(1, 300.0 if extreme and name != "v" else 1 / 32, np.float32)
    return given


def exact(what: Attention, given: dict[str, Any]) -> Array:
    """The result in f64, of the arrays as they are."""
    q, k, v = (given[name].astype(float) for name in "qkv")
    scales = [float(given[f"{name}_scale"][0]) if what.quantized else 1.0 for name in "qkv"]
    seen = what.pattern.to_host().to_dense() != 0
    scores = np.where(seen, q @ np.swapaxes(k, -1, -2) * scales[0] * scales[1] / np.sqrt(what.d), -np.inf)
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isfinite(top), top, 0))
    sums = powers.sum(-1, keepdims=True)
    return np.divide(powers, sums, out=np.zeros_like(powers), where=sums > 0) @ v * scales[2]


def off(got: Any, want: Array) -> float:
    """How far a result is from another, in L2."""
    return float(np.linalg.norm(np.asarray(got, float) - want) / max(1e-9, np.linalg.norm(want)))


def agrees(got: Any, what: Attention, given: dict[str, Any]) -> None:
    """AssertionError for a result that rounding does not explain, and where a query that sees nothing gets no 0."""
    want = exact(what, given)
    assert got.shape == want.shape and got.dtype == np.float16
    limit = 0.01 if what.quantized else 0.03
    limit = limit if what.softmax_bits == 8 else limit / 10 if what.quantized else 0.025
    assert off(got, want) <= limit, off(got, want)
    unseen = ~(what.pattern.to_host().to_dense() != 0).any(1)
    assert not np.asarray(got)[..., unseen, :].any()


def called(what: Attention, line: str = "auto", device: str = "h200", extreme: bool = False) -> Any:
    """The kernel on the emulator; AssertionError unless a call of it is right."""
    kernel = sg.compile(what, device=device, backend="emulator", schedule=line)
    given = inputs(what, extreme=extreme)
    agrees(kernel(**given), what, given)
    return kernel


def program(what: Attention, line: str, profile: DeviceProfile | None = None) -> Program:
    """The kernels of a schedule."""
    return lower(AttentionProblem(what), AttentionSchedule.parse(line), profile or load_profile("h200"))


def launched(
    what: Attention, line: str, number: int = 0, device: str = "h200"
) -> tuple[Func, Callable[[], dict[str, Array]]]:
    """Kernel ``number`` of a schedule, and fresh arguments of a launch of it by parameter; what it writes is NaN."""
    problem, schedule = AttentionProblem(what), AttentionSchedule.parse(line)
    made = program(what, line, load_profile(device)).warp
    func, launch = made.funcs[number], made.launches[number]
    assert isinstance(func, Func)
    given = {f"in.{name}": a for name, a in inputs(what).items()}
    given |= host_arrays(what.pattern, schedule.rules.lists(problem.facts, schedule))

    def arguments() -> dict[str, Array]:
        out: dict[str, Array] = {}
        for role, buffer in zip(launch.args, func.params, strict=True):
            a, dtype = given.get(role), buffer.dtype.numpy()
            out[buffer.name] = np.full(buffer.size, np.nan, dtype) if a is None else a.reshape(-1).view(dtype).copy()
        return out

    return func, arguments
