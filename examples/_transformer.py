"""The model of ``sparse_transformer.py``, what it learns, and how long it takes; needs torch."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

import sparsegen as sg
from sparsegen.torch import SparseAttention

#: q, k and v [batch, heads, length, d] -> the same, as ``scaled_dot_product_attention`` does it.
Attend = Callable[[Any, Any, Any], Any]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# What there is to learn: KINDS kinds of tokens have VALUES values each, every other token is one of FILLERS.
KINDS, VALUES, FILLERS = 2, 4, 8
#: A value stands at one of so many places of a sequence, of each kind.
RARE = 32
WORDS, ANSWERS = FILLERS + KINDS * VALUES + 1, VALUES**KINDS
CALLS = 3  # before anything is timed


# ----------------------------------------------------------------------------------------------------- the model
class Layer(nn.Module):
    """x [batch, length, width] -> the same: attention, then two linear layers, each after a norm and added to x."""

    def __init__(self, heads: int, d: int) -> None:
        super().__init__()
        width = heads * d
        self.split = (3, heads, d)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any, attend: Attend) -> Any:
        q, k, v = self.qkv(self.before(x)).unflatten(-1, self.split).permute(2, 0, 3, 1, 4)
        x = x + self.out(attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.after(x))


class Encoder(nn.Module):
    """Words [batch, length] -> scores of the answers [batch, ANSWERS], which are read at the first position alone.

    How a position attends to the others is said at each call, so the same weights serve any attention.
    """

    def __init__(self, layers: int, length: int, heads: int, d: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, heads * d), nn.Parameter(torch.zeros(length, heads * d))
        self.layers = nn.ModuleList(Layer(heads, d) for _ in range(layers))
        self.norm, self.answers = nn.LayerNorm(heads * d), nn.Linear(heads * d, ANSWERS)

    def forward(self, words: Any, attend: Attend) -> Any:
        x = self.words(words) + self.places
        for layer in self.layers:
            x = layer(x, attend)
        return self.answers(self.norm(x[:, 0]))


def dense(seen: Any = None) -> Attend:
    """torch's attention; ``seen``, a bool array [length, length], says which keys a query sees, by default all."""
    mask = None if seen is None else torch.from_numpy(seen).to(DEVICE)
    return partial(nn.functional.scaled_dot_product_attention, attn_mask=mask)


def quantised(seen: Any, heads: int, d: int, batch: int, *, bits: int, softmax_bits: int) -> Attend:
    """Ours: ``SparseAttention``, and without a GPU its kernels on the emulator.

    CPU tensors would get ``SparseAttention``'s reference, whose exponentials are not rounded.
    """
    if DEVICE.type == "cuda":
        attend: Attend = SparseAttention(seen, heads, d, bits=bits, softmax_bits=softmax_bits)
    else:
        what = sg.attention(seen, heads, d, bits=bits, softmax_bits=softmax_bits, batch=batch)
        attend = sg.compile(what, device="h200", backend="emulator")
    return lambda q, k, v: attend(*(x.to(torch.float16).contiguous() for x in (q, k, v))).to(q.dtype)


# ------------------------------------------------------------------------------------------------- what it learns
def sequences(count: int, length: int, draw: Any) -> tuple[Any, Any]:
    """Words [count, length] and their answers [count].

    A sequence has a value of each kind, at length / RARE places anywhere, between fillers; which they are, all kinds
    together, is the answer.  The first word is always the same: it learns of the others by attention, or not at all.
    """
    words = torch.randint(FILLERS, (count, length), generator=draw)
    values = torch.randint(VALUES, (count, KINDS), generator=draw)
    each = max(1, length // RARE)
    places = 1 + torch.rand(count, length - 1, generator=draw).argsort(1)[:, : KINDS * each]
    words.scatter_(1, places, (FILLERS + VALUES * torch.arange(KINDS) + values).repeat(1, each))
    words[:, 0] = WORDS - 1
    return words.to(DEVICE), (values * VALUES ** torch.arange(KINDS)).sum(1).to(DEVICE)


def trained(model: Encoder, attend: Attend, steps: int, batch: int, seed: int) -> None:
    """Train it in f32 on sequences that are drawn as it goes: each is seen once."""
    draw, (length, width) = torch.Generator().manual_seed(seed), model.places.shape
    adam, rising = torch.optim.AdamW(model.parameters(), 0.2 / width), max(1, steps // 5)
    rates = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda step: min((step + 1) / rising, (steps - step) / max(1, steps - rising))
    )
    for _ in range(steps):
        words, answers = sequences(batch, length, draw)
        loss = nn.functional.cross_entropy(model(words, attend), answers)
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        rates.step()


@torch.no_grad()
def answered(model: Encoder, attend: Attend, batches: int, batch: int, seed: int) -> tuple[float, Any]:
    """The share of right answers to new sequences, and all scores [batches * batch, ANSWERS]; of a seed the same."""
    draw, length = torch.Generator().manual_seed(seed), model.places.shape[0]
    words, answers = sequences(batches * batch, length, draw)
    scores = torch.cat([model(each, attend) for each in words.split(batch)])
    return float((scores.argmax(1) == answers).double().mean()), scores


# --------------------------------------------------------------------------------------------------- its time, GPU
@torch.no_grad()
def seconds(model: Encoder, words: Any, attend: Attend, repeats: int) -> float:
    """Median time of a forward pass, by CUDA events around each replay of a CUDA graph of it, after some calls."""
    for _ in range(CALLS):
        model(words, attend)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(words, attend)
    events = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(CALLS + repeats)]
    for start, stop in events:
        start.record()
        graph.replay()
        stop.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(stop) for start, stop in events[CALLS:]) * 1e-3


def fastest_dense(model: Encoder, words: Any, repeats: int) -> tuple[float, str]:
    """Seconds with dense attention by the faster of torch's backends, and which it is."""
    found = []
    for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
        try:
            with nn.attention.sdpa_kernel(getattr(nn.attention.SDPBackend, name)):
                found.append((seconds(model, words, dense(), repeats), name.partition("_")[0].lower()))
        except RuntimeError:  # this torch, or this GPU, has no such backend
            continue
    return min(found)


@torch.no_grad()
def off(attend: Attend, seen: Any, heads: int, d: int, batch: int, seed: int) -> float:
    """How far attention is from the exact one of the same mask, in L2, for normal q, k and v; of the first sequence."""
    draw = torch.Generator(DEVICE).manual_seed(seed)
    q, k, v = torch.randn(3, batch, heads, len(seen), d, generator=draw, device=DEVICE).half()
    exact = dense(seen)(*(x[:1].float() for x in (q, k, v)))
    return distance(attend(q, k, v)[:1].float(), exact)


def distance(got: Any, exact: Any) -> float:
    """How far tensors are from others, in L2."""
    return float((got - exact).norm() / exact.norm())
