"""Sparsified models and dense checkpoints in folders: what was written comes back, and what does not fit is named."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import sparsegen as sg
import sparsegen.torch as st
from tests.refusals import refusal
from tests.torch.layers import tokens, torch

files: Any = pytest.importorskip("safetensors.torch")


class Body(torch.nn.Module):
    """Names as a decoder's, in the module where ``model.`` leads to it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(16, 64)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class Decoder(torch.nn.Module):
    def __init__(self, seed: int, tied: bool = False) -> None:
        torch.manual_seed(seed)
        super().__init__()
        self.model, self.lm_head = Body(), torch.nn.Linear(64, 16, bias=False)
        if tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, x: Any) -> Any:
        return self.lm_head(self.model(x))


RULES = [
    {"names": "*layers.0"},
    {"names": "*layers.1", "pattern": "nm", "n": 3, "m": 10, "vector": 8},
    {"names": "*layers.2", "pattern": "vector", "bits": 8},
]


def sparse(seed: int = 1, tied: bool = False) -> Any:
    net = Decoder(seed, tied).half()
    st.sparsify(net, RULES, fallback="never", tokens=(1,))
    return net


@pytest.mark.parametrize("tied", [False, True])
def test_a_folder_round_trip(tmp_path: Path, tied: bool) -> None:
    net, other, x = sparse(tied=tied), Decoder(2, tied).half(), tokens(3, 64)
    st.save(net, tmp_path / "deep" / "saved")
    st.load(other, tmp_path / "deep" / "saved")
    with torch.no_grad():
        assert torch.equal(other(x), net(x))
    assert [type(layer) for layer in other.model.layers] == [type(layer) for layer in net.model.layers]
    assert (other.lm_head.weight is other.model.embed_tokens.weight) == tied
    assert ("lm_head.weight" in files.load_file(tmp_path / "deep" / "saved" / "model.safetensors")) != tied


def test_scales_and_thresholds_come_back(tmp_path: Path) -> None:
    """What only a layer's maker says: the scale of x that was calibrated, and from how many tokens on it is dense."""
    net, other, x = Decoder(1).half(), Decoder(2).half(), tokens(3, 64)
    layers = net.model.layers
    layers[0] = st.QuantizedLinear.from_linear(layers[0], 0.5, x_scale=0.125)
    layers[1] = st.SparseLinear.from_linear(layers[1], 0.5, dense_above=2)
    layers[2] = st.SparseLinear.from_linear(layers[2], 0.5, dense_above=None)
    st.save(net, tmp_path)
    st.load(other, tmp_path)
    scale, many, none = other.model.layers
    assert scale.x_scale.tolist() == 0.125 and scale.x_scale.dtype == torch.float32
    assert many.dense_above == 2 and torch.equal(many.dense, layers[1].dense) and none.dense_above is None
    with torch.no_grad():
        assert torch.equal(other(x), net(x))
        scale.x_scale.fill_(1.0)
        assert not torch.equal(other(x), net(x)), "the scale is not used"


def test_a_state_dict_round_trip() -> None:
    net, other, x = sparse(1), sparse(2), tokens(3, 64)
    other.load_state_dict(net.state_dict())
    with torch.no_grad():
        assert torch.equal(other(x), net(x))


@pytest.mark.parametrize("prefix", ["model.", "model.decoder.", ""])
def test_dense_checkpoints_by_their_usual_names(tmp_path: Path, prefix: str) -> None:
    """In two files with an index, in another dtype, without a head, with what is no weight."""
    want, net = Decoder(1, tied=True), Decoder(2).half()
    state = {prefix + name: tensor.clone() for name, tensor in want.model.state_dict().items()}
    state[prefix + "layers.0.rotary_emb.inv_freq"] = torch.zeros(3)
    half = len(state) // 2
    parts = {"a.safetensors": dict([*state.items()][:half]), "b.safetensors": dict([*state.items()][half:])}
    for name, part in parts.items():
        files.save_file(part, tmp_path / name)
    index = {"weight_map": {key: name for name, part in parts.items() for key in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    st.load_dense(net, tmp_path)
    assert all(torch.equal(net.state_dict()[name], tensor.half()) for name, tensor in want.state_dict().items())
    (tmp_path / "b.safetensors").unlink()
    refusal(__file__, sg.FormatError, lambda: st.load_dense(net, tmp_path), "lacks b.safetensors")  # here


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    net, before = Decoder(1).half(), Decoder(1).half()
    state = before.state_dict()
    for name, change, says in (
        ("shape", {"model.layers.1.bias": torch.zeros(63)}, "model.layers.1.bias has shape (63,), in the model (64,)"),
        ("more", {"model.layers.3.bias": torch.zeros(64)}, "the model has no layers.3.bias"),
    ):
        (at := tmp_path / name).mkdir()
        files.save_file({**state, **change}, at / "model.safetensors")
        refusal(__file__, sg.FormatError, lambda at=at: st.load_dense(net, at), says)  # here
    (at := tmp_path / "less").mkdir()
    files.save_file({name: t for name, t in state.items() if "layers.2" not in name}, at / "model.safetensors")
    refusal(__file__, sg.FormatError, lambda: st.load_dense(net, at), "no tensor model.layers.2.weight")  # here
    refusal(__file__, sg.FormatError, lambda: st.load_dense(net, tmp_path), "lacks model.safetensors")  # here
    refusal(__file__, sg.FormatError, lambda: st.load(net, tmp_path), "holds no sparsegen.json")  # here
    st.save(sparse(), tmp_path / "saved")
    net.model.layers[1] = torch.nn.Linear(64, 65).half()
    refusal(__file__, sg.FormatError, lambda: st.load(net, tmp_path / "saved"), "model.layers.1 is Linear")  # here
    net.model.layers[1] = torch.nn.Linear(64, 64).half()
    net.lm_head = torch.nn.Linear(64, 17, bias=False).half()
    says = "lm_head.weight has shape (16, 64)"
    refusal(__file__, sg.FormatError, lambda: st.load(net, tmp_path / "saved"), says)  # here
    assert all(type(layer) is torch.nn.Linear for layer in net.model.layers)


def test_without_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    refusal(__file__, sg.SparsegenError, lambda: st.save(sparse(), tmp_path), "pip install safetensors")  # here
    assert not [*tmp_path.iterdir()]
