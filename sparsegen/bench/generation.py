"""What a decoder does with a batch, and what it takes: scores, the time of a step and of its parts, memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, Final

import torch
from torch import nn

from sparsegen.bench.decoder import Decoder, attended
from sparsegen.bench.decoding import Decoding
from sparsegen.bench.lab import Timing
from sparsegen.bench.models import ModelCase, Pruned
from sparsegen.pruning import prune
from sparsegen.torch import SparseLinear, magnitude_mask

#: Steps whose scores are compared, after the prompt's.
CHECKED: Final = 32
#: Calls of a part of a step, for a median.
REPEATS: Final = 11


@dataclass(frozen=True)
class Run:
    """``ids`` int64 [steps, batch, 1] that were given to the first steps, ``scores`` [steps + 1, batch, vocab] after
    the prompt and after each of them, both on the host; seconds of all steps, where they go, and bytes."""

    ids: Any
    scores: Any
    steps: Timing
    split: Mapping[str, float]
    memory: Mapping[str, int]


def linears(model: Decoder) -> list[tuple[str, Any]]:
    """The layers that are pruned, in the order of a step, dense or sparse, with their names."""
    kinds = (nn.Linear, SparseLinear)
    return [(name, module) for name, module in model.body.layers.named_modules() if isinstance(module, kinds)]


def mask(model: Decoder, pruned: Pruned) -> None:
    """Set the weights that go to 0, in the dense layers."""
    for _, layer in linears(model):
        if pruned.sparsity is None:
            layer.weight.copy_(prune(layer.weight, "nm", n=pruned.n, m=pruned.m, vector=pruned.vector))
        else:
            layer.weight.masked_fill_(~magnitude_mask(layer.weight, pruned.sparsity), 0)


def encode(model: Decoder, pruned: Pruned, tokens: tuple[int, ...]) -> None:
    """Put a sparse layer in the place of each, and build the kernels for these numbers of tokens.

    None is ever decoded for many tokens, as that would take memory.
    """
    for name, layer in linears(model):
        parent, _, last = name.rpartition(".")
        made = SparseLinear.from_linear(layer, dense_above=None, **pruned.words)
        setattr(model.body.layers.get_submodule(parent), last, made)
    made_of = {(layer.out_features, layer.in_features): layer for _, layer in linears(model)}
    with ThreadPoolExecutor() as pool:  # of one layer of each shape all kernels at once; others share them
        list(pool.map(partial(SparseLinear.prepare, tokens=tokens), made_of.values()))
    for _, layer in linears(model):
        layer.prepare(tokens)


def run(model: Decoder, case: ModelCase, prompts: Any, given: Any = None) -> Run:
    """Go on with prompts int64 [batch, length]: first some steps with scores, with the tokens ``given`` or greedily,
    then all that are generated, timed, then the parts of a step."""
    gc.collect()
    if prompts.is_cuda:
        torch.cuda.reset_peak_memory_stats(prompts.device)
    decoding = Decoding(model, case.batch, case.prompt + case.generated)
    scores, ids = [decoding.prompt(prompts).cpu()], list[Any]()
    for at in range(min(CHECKED, case.generated)):
        if given is not None:
            decoding.ids.copy_(given[at])
        ids.append(decoding.ids.cpu().clone())
        scores.append(decoding.step().cpu())
    decoding.position.fill_(case.prompt)
    steps = _timed(decoding.step, case.generated, prompts.device)
    memory = _memory(model, decoding)
    alone = {name: median(_timed(call, REPEATS, prompts.device)) for name, call in _parts(model, decoding).items()}
    rest = median(steps) - sum(alone.values())
    return Run(torch.stack(ids), torch.stack(scores), Timing.of(steps), {**alone, "rest": rest}, memory)


def _timed(call: Callable[[], object], times: int, device: Any) -> list[float]:
    """Seconds of each of so many calls, one after another; on a GPU between events."""
    if device.type != "cuda":
        clock = [time.perf_counter()]
        for _ in range(times):
            call()
            clock.append(time.perf_counter())
        return [b - a for a, b in pairwise(clock)]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    torch.cuda.synchronize(device)
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize(device)
    return [a.elapsed_time(b) * 1e-3 for a, b in pairwise(events)]


def _memory(model: Decoder, decoding: Decoding) -> dict[str, int]:
    """Bytes of weights, of the cache, and on a GPU what torch had allocated besides at its most, and what is taken
    outside of torch: by the driver, by loaded kernels and by their workspaces."""
    tensors = [*model.parameters(), *model.buffers()]
    weights = sum({t.data_ptr(): t.nbytes for t in tensors}.values())
    found = {"weights": weights, "cache": decoding.cache.nbytes, "rest": 0, "outside": 0}
    if (device := decoding.device).type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        found["rest"] = torch.cuda.max_memory_allocated(device) - weights - found["cache"]
        found["outside"] = total - free - torch.cuda.memory_reserved(device)
    return found


def _parts(model: Decoder, decoding: Decoding) -> dict[str, Callable[[], object]]:
    """The layers that are pruned, the head, and attention, each alone with all its calls of a step."""
    c, cache, like = model.config, decoding.cache, model.body.embed_tokens.weight
    layers = [layer for _, layer in linears(model)]
    xs = {layer.in_features: torch.randn(decoding.batch, 1, layer.in_features, device=like.device).to(like.dtype)
          for layer in layers}  # fmt: skip
    q = torch.randn(decoding.batch, c.kv_heads, c.repeats, c.d, device=like.device).to(like.dtype)
    seen = model.places(decoding.position - 1, cache.room).mask

    def all_layers() -> None:
        for layer in layers:
            layer(xs[layer.in_features])

    def all_attention() -> None:
        for keys, values in cache.layers:
            attended(q, keys, values, seen)

    calls = {"layers": all_layers, "head": lambda: model.lm_head(xs[c.hidden][:, 0]), "attention": all_attention}
    return {name: captured(call, like.device) for name, call in calls.items()}


def captured(call: Callable[[], object], device: Any) -> Callable[[], object]:
    """What replays a CUDA graph of a call, which has been called before; elsewhere the call."""

    def quietly() -> None:
        with torch.no_grad():
            call()

    quietly()
    if device.type != "cuda":
        return quietly
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        quietly()
    graph.replay()
    replay: Callable[[], object] = graph.replay
    return replay
