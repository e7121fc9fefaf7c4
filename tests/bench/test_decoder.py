"""Decoders in plain torch: their formulas, their cache, the names of their weights; steps as generation takes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparsegen.bench.config import LLAMA_8B, OPT_13B, TINY_LLAMA, TINY_OPT, Config

torch: Any = pytest.importorskip("torch")

from sparsegen.bench import generation  # noqa: E402
from sparsegen.bench.decoder import ROOM, Cache, Decoder, decoder  # noqa: E402
from sparsegen.bench.decoding import Decoding  # noqa: E402
from sparsegen.bench.models import ANYWHERE  # noqa: E402

CONFIGS = pytest.mark.parametrize("config", [TINY_OPT, TINY_LLAMA], ids=lambda config: config.family)


def tokens(config: Config, *shape: int) -> Any:
    """Random ones."""
    return torch.randint(config.vocab, shape, generator=torch.Generator().manual_seed(1))


def written_out(model: Decoder, ids: Any) -> Any:
    """The scores after the last of ids [batch, length], by the formulas of the models, one head after another."""
    c, body, (batch, length) = model.config, model.body, ids.shape
    functional, at = torch.nn.functional, torch.arange(length)
    x = functional.embedding(ids, body.embed_tokens.weight)
    if c.family == "opt":
        x = x + body.embed_positions.weight[at + 2]
    angles = at[:, None] / c.base ** (torch.arange(0, c.d, 2) / c.d)
    cos, sin = (torch.cat((f(angles), f(angles)), -1) for f in (torch.cos, torch.sin))

    def turned(a: Any) -> Any:
        if c.family == "opt":
            return a
        half = torch.cat((-a[..., c.d // 2 :], a[..., : c.d // 2]), -1)
        return a * cos + half * sin

    def attention(block: Any, y: Any) -> Any:
        q, k, v = (getattr(block, name)(y).view(batch, length, -1, c.d) for name in ("q_proj", "k_proj", "v_proj"))
        out = []
        for head in range(c.heads):
            of = head * c.kv_heads // c.heads
            scores = turned(q[:, :, head]) @ turned(k[:, :, of]).transpose(1, 2) / c.d**0.5
            scores = scores.masked_fill(at > at[:, None], -torch.inf)
            out.append(scores.softmax(-1) @ v[:, :, of])
        return getattr(block, "out_proj" if c.family == "opt" else "o_proj")(torch.cat(out, -1))

    for layer in body.layers:
        if c.family == "opt":
            x = x + attention(layer.self_attn, layer.self_attn_layer_norm(x))
            x = x + layer.fc2(layer.fc1(layer.final_layer_norm(x)).relu())
        else:
            x = x + attention(layer.self_attn, layer.input_layernorm(x))
            y = layer.post_attention_layernorm(x)
            x = x + layer.mlp.down_proj(functional.silu(layer.mlp.gate_proj(y)) * layer.mlp.up_proj(y))
    norm = body.final_layer_norm if c.family == "opt" else body.norm
    return model.lm_head(norm(x))[:, -1]


@CONFIGS
def test_the_formulas(config: Config) -> None:
    model, ids = decoder(config, "cpu", torch.float64, 1), tokens(config, 2, 9)
    want = written_out(model, ids)
    assert (model(ids) - want).abs().max() < 1e-6 * want.abs().max()  # angles are f32


@CONFIGS
def test_steps_are_the_whole(config: Config) -> None:
    """A prompt, then token after token, is what all tokens at once are; and greedy steps feed themselves."""
    model, ids = decoder(config, "cpu", torch.float32, 1), tokens(config, 3, 10)
    decoding = Decoding(model, 3, 12)
    scores = decoding.prompt(ids[:, :6])
    assert torch.equal(decoding.ids[:, 0], scores.argmax(-1)) and decoding.position.tolist() == [6]
    for at in range(6, 10):
        assert (scores - model(ids[:, :at])).abs().max() < 1e-4 * scores.abs().max()
        decoding.ids.copy_(ids[:, at : at + 1])
        scores = decoding.step()
    assert (scores - model(ids)).abs().max() < 1e-4 * scores.abs().max()
    longer = torch.cat((ids, decoding.ids), 1)
    assert (decoding.step() - model(longer)).abs().max() < 1e-4 * scores.abs().max()
    assert decoding.position.tolist() == [11]


@CONFIGS
def test_joined_layers_are_the_same_layers(config: Config) -> None:
    model, ids = decoder(config, "cpu", torch.float32, 1), tokens(config, 2, 9)
    if config.family == "opt":
        for layer in model.body.layers:
            layer.self_attn.k_proj.bias.add_(1)
    want, count = model(ids), sum(p.numel() for p in model.parameters())
    model.join()
    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    assert "qkv_proj" in names and not names & {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"}
    assert (model(ids) - want).abs().max() < 1e-5 * want.abs().max()
    assert sum(p.numel() for p in model.parameters()) == count


def test_a_cache_has_aligned_room() -> None:
    cache = Cache(TINY_LLAMA, 3, ROOM + 1, "cpu", torch.float16)
    assert [tuple(t.shape) for layer in cache.layers for t in layer] == [(3, 2, 2 * ROOM, 32)] * 4
    assert cache.nbytes == 4 * 3 * 2 * 2 * ROOM * 32 * 2
    (keys, _), *_ = cache.of(2)
    assert keys.data_ptr() == cache.layers[0][0][2].data_ptr() and keys.shape[0] == 1


def test_weights_are_those_of_the_seed_and_keep_their_size() -> None:
    """Also in f16, through many layers."""
    deep = replace(TINY_LLAMA, layers=24)
    one, same, other = (decoder(deep, "cpu", torch.float16, seed) for seed in (1, 1, 2))
    pairs = list(zip(one.parameters(), same.parameters(), strict=True))
    assert all(torch.equal(a, b) and bool(a.isfinite().all()) for a, b in pairs)
    assert not torch.equal(one.body.layers[0].mlp.up_proj.weight, other.body.layers[0].mlp.up_proj.weight)
    scores = one(tokens(deep, 2, 8)).float()
    assert 0.3 < float(scores.std()) < 3


def test_the_sizes_are_those_of_the_models() -> None:
    """By the number of weights that their papers name."""
    for config, billions in ((OPT_13B, 12.85), (LLAMA_8B, 8.03)):
        with torch.device("meta"):
            count = sum(p.numel() for p in Decoder(config).parameters())
        assert count / 1e9 == pytest.approx(billions, abs=0.01)


@CONFIGS
def test_checkpoints_by_their_usual_names(config: Config, tmp_path: Path) -> None:
    """OPT's has no head: it is the embedding."""
    files = pytest.importorskip("safetensors.torch")
    import sparsegen.torch as st

    want, model = (decoder(config, "cpu", torch.float32, seed) for seed in (1, 2))
    first = "decoder" if config.family == "opt" else "model"
    state = {
        f"{first}.{name}": tensor.clone() for name, tensor in want.body.state_dict().items()
    } | ({} if config.family == "opt" else {"lm_head.weight": want.lm_head.weight.clone()})  # fmt: skip
    usual = {"opt": "layers.1.self_attn.out_proj.bias", "llama": "layers.1.mlp.gate_proj.weight"}
    assert f"{first}.{usual[config.family]}" in state
    files.save_file(state, tmp_path / "model.safetensors")
    st.load_dense(model, tmp_path)
    ids = tokens(config, 1, 5)
    assert torch.equal(model(ids), want(ids))


@CONFIGS
def test_compiled_layers_are_one_graph(config: Config) -> None:
    """Dense or sparse, of all layers and steps; a prompt runs as it is written."""
    config = replace(config, layers=12)
    model = decoder(config, "cpu", torch.float16, 1)
    generation.mask(model, ANYWHERE)
    ids, graphs = tokens(config, 2, 5), list[Any]()

    def counted(graph: Any, given: Any) -> Any:
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, given)

    for step, change in enumerate((None, lambda: generation.encode(model, ANYWHERE, (2, 5)))):
        torch._dynamo.reset()
        if change is not None:
            change()
        found = []
        for compiled in (False, True):
            for layer in model.body.layers:
                if compiled:
                    layer.compile(backend=counted, fullgraph=True, dynamic=False)
                else:
                    layer._compiled_call_impl = None
            decoding = Decoding(model, 2, 12)
            found.append([decoding.prompt(ids), *(decoding.step().clone() for _ in range(3))])
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True)) and len(graphs) == step + 1


@pytest.mark.gpu
@CONFIGS
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_captured_step_is_the_call(config: Config, sparse: bool, compiled: bool) -> None:
    """Step after step the same bits, also where the graph is replayed for another prompt."""
    model = decoder(config, "cuda", torch.float16, 1)
    if sparse:
        generation.mask(model, ANYWHERE)
        generation.encode(model, ANYWHERE, (2, 5))
    torch._dynamo.reset()
    if compiled:
        for layer in model.body.layers:
            layer.compile(dynamic=False, fullgraph=True)
    captured, plain = Decoding(model, 2, 12), Decoding(model, 2, 12)
    for seed in (1, 2):
        ids = torch.randint(config.vocab, (2, 5), generator=torch.Generator().manual_seed(seed))
        assert torch.equal(captured.prompt(ids), plain.prompt(ids))
        for _ in range(4):
            plain._step()
            assert torch.equal(captured.step(), plain.scores) and torch.equal(captured.ids, plain.ids)
        assert torch.equal(captured.position, plain.position)
