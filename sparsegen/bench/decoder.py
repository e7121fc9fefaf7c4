"""Decoders of language models in plain torch, from a config: as Llama, and as OPT, with a cache of a fixed size.

Layers are named as in the usual checkpoints, so ``sparsegen.torch.load_dense`` fills them.  Keys and values lie in
tensors that never move, and positions are tensors: a step of decoding can be captured as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

from sparsegen.bench.config import Config

#: A cache has room for a multiple of so many tokens: torch's attention wants masks of aligned rows.
ROOM: Final = 64
#: OPT's table of positions begins with so many that no token has.
_OFFSET: Final = 2


class Places(NamedTuple):
    """Where the tokens of a call stand: ``positions`` int64 [length]; ``mask`` [repeats * length, room] is added to
    scores; ``turn`` [2, length, 1, d]: Llama's cosines, and its sines with the sign of the half."""

    positions: Any
    mask: Any
    turn: Any


class Cache:
    """Keys and values of each layer [batch, kv_heads, room, d], room for ``tokens`` of them at least."""

    def __init__(self, config: Config, batch: int, tokens: int, device: Any, dtype: Any) -> None:
        self.room = -(-tokens // ROOM) * ROOM
        shape = (batch, config.kv_heads, self.room, config.d)
        self.layers = [
            tuple(torch.zeros(shape, device=device, dtype=dtype) for _ in range(2)) for _ in range(config.layers)
        ]

    def of(self, sequence: int) -> list[tuple[Any, ...]]:
        """Views of one sequence's part of each layer [1, kv_heads, room, d]."""
        return [tuple(t[sequence : sequence + 1] for t in layer) for layer in self.layers]

    @property
    def nbytes(self) -> int:
        """Bytes of all layers."""
        return sum(t.nbytes for layer in self.layers for t in layer)


def attended(q: Any, keys: Any, values: Any, mask: Any) -> Any:
    """Attention of q [batch, kv_heads, repeats * length, d]: the queries of heads that share keys stand one below
    another, so nothing is repeated."""
    return scaled_dot_product_attention(q, keys, values, attn_mask=mask)


def joined(layers: Sequence[Any]) -> Any:
    """Linear layers of one input as one, whose result has those of each side by side."""
    first, features = layers[0], sum(layer.out_features for layer in layers)
    made = nn.Linear(first.in_features, features, first.bias is not None, "meta", first.weight.dtype)
    made.weight = nn.Parameter(torch.cat([layer.weight for layer in layers]), False)
    if first.bias is not None:
        made.bias = nn.Parameter(torch.cat([layer.bias for layer in layers]), False)
    return made


class Attention(nn.Module):
    """Attention to a cache, whose output projection is called ``out``; ``qkv_proj`` is in the place of three layers
    once they are joined."""

    def __init__(self, config: Config, out: str, bias: bool) -> None:
        super().__init__()
        self.config, self.out = config, out
        wide, narrow = config.hidden, config.kv_heads * config.d
        self.q_proj, self.k_proj = nn.Linear(wide, wide, bias), nn.Linear(wide, narrow, bias)
        self.v_proj = nn.Linear(wide, narrow, bias)
        self.add_module(out, nn.Linear(wide, wide, bias))
        self.qkv_proj: Any = None

    def join(self) -> None:
        """Make one layer of three."""
        self.qkv_proj = joined((self.q_proj, self.k_proj, self.v_proj))
        del self.q_proj, self.k_proj, self.v_proj

    def projected(self, x: Any) -> tuple[Any, ...]:
        """Queries, keys and values of x, each of its heads side by side."""
        if self.qkv_proj is None:
            return self.q_proj(x), self.k_proj(x), self.v_proj(x)
        narrow = self.config.kv_heads * self.config.d
        parts: tuple[Any, ...] = self.qkv_proj(x).split((self.config.hidden, narrow, narrow), -1)
        return parts

    def forward(self, x: Any, keys: Any, values: Any, places: Places) -> Any:
        """x [batch, length, hidden] -> the same; its keys and values go into the cache."""
        c, (batch, length, _) = self.config, x.shape
        q, k, v = self.projected(x)
        q = q.view(batch, length, c.heads, c.d)
        k, v = (a.view(batch, length, c.kv_heads, c.d) for a in (k, v))
        if places.turn is not None:
            both, (cos, sin) = torch.cat((q, k), 2), places.turn
            q, k = torch.addcmul(both * cos, both.roll(c.d // 2, -1), sin).split((c.heads, c.kv_heads), 2)
        keys.index_copy_(2, places.positions, k.transpose(1, 2))
        values.index_copy_(2, places.positions, v.transpose(1, 2))
        q = q.unflatten(2, (c.kv_heads, c.repeats)).permute(0, 2, 3, 1, 4)
        y = attended(q.reshape(batch, c.kv_heads, -1, c.d), keys, values, places.mask)
        y = y.unflatten(2, (c.repeats, length)).permute(0, 3, 1, 2, 4)
        return getattr(self, self.out)(y.reshape(batch, length, c.hidden))


class Gated(nn.Module):
    """Llama's MLP; ``gate_up_proj`` is in the place of two layers once they are joined."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(config.hidden, config.ffn, False) for _ in range(2))
        self.down_proj = nn.Linear(config.ffn, config.hidden, False)
        self.gate_up_proj: Any = None

    def join(self) -> None:
        """Make one layer of two."""
        self.gate_up_proj = joined((self.gate_proj, self.up_proj))
        del self.gate_proj, self.up_proj

    def forward(self, x: Any) -> Any:
        if self.gate_up_proj is None:
            return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        return self.down_proj(silu(gate) * up)


class LlamaLayer(nn.Module):
    """x [batch, length, hidden] -> the same: grouped attention and a gated MLP, each after a norm and added to x."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden, config.eps)
        self.self_attn = Attention(config, "o_proj", False)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.eps)
        self.mlp = Gated(config)

    def forward(self, x: Any, keys: Any, values: Any, places: Places) -> Any:
        x = x + self.self_attn(self.input_layernorm(x), keys, values, places)
        return x + self.mlp(self.post_attention_layernorm(x))


class OptLayer(nn.Module):
    """x [batch, length, hidden] -> the same: attention and an MLP with ReLU, each after a norm and added to x."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attn = Attention(config, "out_proj", True)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden, config.eps)
        self.fc1, self.fc2 = nn.Linear(config.hidden, config.ffn), nn.Linear(config.ffn, config.hidden)
        self.final_layer_norm = nn.LayerNorm(config.hidden, config.eps)

    def forward(self, x: Any, keys: Any, values: Any, places: Places) -> Any:
        x = x + self.self_attn(self.self_attn_layer_norm(x), keys, values, places)
        return x + self.fc2(self.fc1(self.final_layer_norm(x)).relu_())


class Decoder(nn.Module):
    """A decoder with random weights as ``nn.Linear`` makes them; :func:`decoder` makes large ones on their device."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, opt = config, config.family == "opt"
        body = nn.Module()
        body.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        if opt:
            body.embed_positions = nn.Embedding(config.longest + _OFFSET, config.hidden)
        body.layers = nn.ModuleList((OptLayer if opt else LlamaLayer)(config) for _ in range(config.layers))
        if opt:
            body.final_layer_norm = nn.LayerNorm(config.hidden, config.eps)
        else:
            body.norm = nn.RMSNorm(config.hidden, config.eps)
        self.model = nn.ModuleDict({"decoder": body}) if opt else body
        self.lm_head = nn.Linear(config.hidden, config.vocab, False)
        self.tie()

    def tie(self) -> None:
        """OPT's head has the weights of its embedding."""
        if self.config.family == "opt":
            self.lm_head.weight = self.body.embed_tokens.weight

    def join(self) -> None:
        """Make one layer of those that are given the same: of q, k and v, and of gate and up, as servers do."""
        for module in self.body.layers.modules():
            if isinstance(module, (Attention, Gated)):
                module.join()

    @property
    def body(self) -> Any:
        """The module with the embedding, the layers and the last norm."""
        return self.model["decoder"] if self.config.family == "opt" else self.model

    def places(self, positions: Any, room: int) -> Places:
        """What all layers are told of tokens at these positions, int64 [length]."""
        c, like = self.config, self.body.embed_tokens.weight
        hidden = torch.arange(room, device=like.device) > positions[:, None]
        mask = torch.zeros(hidden.shape, device=like.device, dtype=like.dtype).masked_fill_(hidden, -torch.inf)
        if c.family == "opt":
            return Places(positions, mask, None)
        steps = torch.arange(0, c.d, 2, device=like.device, dtype=torch.float32) / c.d
        angles = positions[:, None].float() * c.base**-steps
        cos, sin = angles.cos(), angles.sin()
        turn = torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)))
        return Places(positions, mask.repeat(c.repeats, 1), turn[:, :, None].to(like.dtype))

    def forward(self, ids: Any, cache: Any = None, positions: Any = None) -> Any:
        """Tokens int64 [batch, length] at ``positions`` int64 [length] -> scores [batch, vocab] of what comes next.

        ``cache``: a :class:`Cache`, or the list of one sequence's (:meth:`Cache.of`), which holds what came before and
        gets what these tokens add; without one they are all there is.  Layers that are compiled run so for one token a
        sequence, a step of decoding; prompts, of any length, run as they are written.
        """
        c, body = self.config, self.body
        if cache is None:
            (batch, length), like = ids.shape, body.embed_tokens.weight
            cache = Cache(c, batch, length, like.device, like.dtype)
            positions = torch.arange(length, device=like.device)
        layers = cache if isinstance(cache, list) else cache.layers
        x, places = body.embed_tokens(ids), self.places(positions, layers[0][0].shape[2])
        if c.family == "opt":
            x = x + body.embed_positions(positions + _OFFSET)
        for layer, (keys, values) in zip(body.layers, layers, strict=True):
            x = (layer if ids.shape[1] == 1 else layer.forward)(x, keys, values, places)
        norm = body.final_layer_norm if c.family == "opt" else body.norm
        return self.lm_head(norm(x[:, -1]))


def decoder(config: Config, device: Any, dtype: Any, seed: int) -> Decoder:
    """A decoder with random weights, made where it stays; the same for the same seed on the same device.

    Linear layers keep the size of what they are given, and what is added to x shrinks with the number of layers, so
    numbers stay in f16's range.
    """
    with torch.device("meta"):
        made = Decoder(config)
    made.to(dtype).to_empty(device=device).eval().requires_grad_(False)
    made.tie()
    generator = torch.Generator(device).manual_seed(seed)
    for name, module in made.named_modules():
        if isinstance(module, nn.Linear) and module is not made.lm_head:
            added = name.endswith(("o_proj", "out_proj", "down_proj", "fc2"))
            spread = (module.in_features * (2 * config.layers if added else 1)) ** -0.5
            module.weight.normal_(0, spread, generator=generator)
            if module.bias is not None:
                module.bias.normal_(0, spread, generator=generator)
        elif isinstance(module, nn.Embedding):
            module.weight.normal_(0, 0.02, generator=generator)
        elif isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
            module.reset_parameters()
    if config.family == "llama":
        made.lm_head.weight.normal_(0, config.hidden**-0.5, generator=generator)
    return made
