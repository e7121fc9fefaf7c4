"""Generating tokens with a decoder: the prompt, then one step after another, each the replay of one CUDA graph."""

from __future__ import annotations

from typing import Any, Final

import torch

from sparsegen.bench.decoder import Cache, Decoder
from sparsegen.torch import SparseLinear

#: Steps before the capture: libraries choose and allocate in the first.
_WARM: Final = 3


class Decoding:
    """A batch of sequences that a decoder goes on with, greedily.

    ``ids`` int64 [batch, 1] and ``position`` int64 [1] are what the next step reads, and it writes them: the token with
    the highest score, and the position after.  ``scores`` [batch, vocab] are those of the last step.  On a GPU a step
    is captured as a CUDA graph when it is first taken, after the kernels of sparse layers are built; elsewhere it is a
    call.
    """

    def __init__(self, model: Decoder, batch: int, tokens: int) -> None:
        """``tokens``: how many a sequence may have, with its prompt."""
        like = model.body.embed_tokens.weight
        self.model, self.batch, self.device = model, batch, like.device
        self.cache = Cache(model.config, batch, tokens, like.device, like.dtype)
        self.ids = torch.zeros(batch, 1, dtype=torch.int64, device=like.device)
        self.position = torch.zeros(1, dtype=torch.int64, device=like.device)
        self.scores: Any = None
        self._graph: Any = None

    def prompt(self, ids: Any) -> Any:
        """Take in prompts int64 [batch, length], one sequence after another; their scores [batch, vocab]."""
        prepare(self.model, (ids.shape[1],))
        positions = torch.arange(ids.shape[1], device=self.device)
        with torch.no_grad():
            scores = torch.cat(
                [self.model(one[None], self.cache.of(at), positions) for at, one in enumerate(ids.to(self.device))]
            )
        self.ids.copy_(scores.argmax(-1, keepdim=True))
        self.position.fill_(ids.shape[1])
        return scores

    def step(self) -> Any:
        """One token more of each sequence; its scores, which the next step overwrites."""
        if self.device.type != "cuda":
            self._step()
        else:
            self._graph = self._graph or self._capture()
            self._graph.replay()
        return self.scores

    def _step(self) -> None:
        with torch.no_grad():
            self.scores = self.model(self.ids, self.cache, self.position)
            torch.argmax(self.scores, -1, keepdim=True, out=self.ids)
            self.position += 1

    def _capture(self) -> Any:
        """The graph of a step; what the steps before it have written is undone, or will be overwritten."""
        prepare(self.model, (self.batch,))
        ids, position = self.ids.clone(), self.position.clone()
        for _ in range(_WARM):
            self._step()
            self.ids.copy_(ids)
            self.position.copy_(position)
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        return graph


def prepare(model: Decoder, tokens: tuple[int, ...]) -> None:
    """Build the kernels of all sparse layers for these numbers of tokens."""
    for module in model.modules():
        if isinstance(module, SparseLinear):
            module.prepare(tokens)
