"""A sparsified model as a folder, and dense checkpoints as they usually lie in one.

A folder holds ``model.safetensors`` and ``sparsegen.json``, which says how each sparse layer is made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

import torch

from sparsegen.callsite import located, user_loc
from sparsegen.ir.errors import FormatError, SparsegenError
from sparsegen.torch.fused import FusedLinear, outermost
from sparsegen.torch.linear import SparseLinear
from sparsegen.torch.prune import DTYPES
from sparsegen.torch.quantized import QuantizedLinear
from sparsegen.torch.split import Split
from sparsegen.torch.whole import styles_of

_WEIGHTS, _INDEX, _MADE = "model.safetensors", "model.safetensors.index.json", "sparsegen.json"
_VERSION: Final = 1
#: What stands before a decoder's names in the usual checkpoints (Llama and Qwen; OPT), and may be missing.
_PREFIXES: Final = ("model.decoder.", "model.", "decoder.")
#: Ends of names that are no weights.
_IDLE: Final = ("rotary_emb.inv_freq", ".attn.bias", ".masked_bias")
_HEAD, _WORDS = "lm_head.weight", "embed_tokens.weight"
_KINDS: Final = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}


def save(model: Any, folder: str | Path) -> None:
    """Write a model with its sparse layers to a folder, which is made; :func:`load` reads it.

    Weights that share memory are written once.  Of a model whose layers are split over ranks each rank writes its own
    two files; all of them call it.  SparsegenError without the package ``safetensors``.
    """
    with located(user_loc()):
        files, to = _safetensors(), Path(folder)
        weights, made = _names(_part(model))
        state = {name: _whole(tensor) for name, tensor in model.state_dict().items()}
        first: dict[Any, str] = {}
        same, kept = dict[str, str](), dict[str, Any]()
        for name, tensor in state.items():
            place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if tensor.numel() else name
            if (other := first.setdefault(place, name)) != name:
                same[name] = other
            else:
                kept[name] = tensor.detach().contiguous()
        layers = {name: told for name, module in model.named_modules() if (told := _told(module))}
        to.mkdir(parents=True, exist_ok=True)
        files.save_file(kept, to / weights)
        (to / made).write_text(json.dumps({"version": _VERSION, "layers": layers, "same": same}, indent=1))


def load(model: Any, folder: str | Path, *, mesh: Any = None, plan: Any = None) -> None:
    """Give a model what :func:`save` wrote: its Linear layers are replaced by sparse ones, in place, and filled.

    ``model`` is built as that one was before it was sparsified.  ``mesh`` and ``plan`` split it as
    :func:`sparsegen.torch.sparsify` has them: from this rank's files of a model that was split over as many ranks, or
    from those of a whole one, over any number.  FormatError for a folder that holds no such model, for layers that the
    model lacks, and for tensors that are missing, too many or of another shape, which it names.
    """
    with located(user_loc()):
        files, at = _safetensors(), Path(folder)
        split = styles_of(mesh, plan, [name for name, _ in outermost(model)])
        part = None if mesh is None else Split(0, mesh.size(), mesh.get_local_rank())
        weights, made_of = _names(part if part and (at / _names(part)[1]).is_file() else None)
        if not (at / made_of).is_file() or not (at / weights).is_file():
            raise FormatError(
                f"{at} holds no {made_of} with {weights}",
                hint="name a folder of save(), with mesh and plan where it was split; a dense one: load_dense",
            )
        told = json.loads((at / made_of).read_text())
        if told.get("version") != _VERSION:
            raise FormatError(f"{at} has version {told.get('version')}, this is {_VERSION}", hint="update sparsegen")
        state = files.load_file(at / weights)
        state |= {name: state[other] for name, other in told["same"].items()}
        made = {name: _built(model, name, words) for name, words in told["layers"].items()}
        _fits(model, state, tuple(f"{name}." for name in made))
        for name, layer in made.items():
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, layer)
        _fill(model, state)
        cuts = {_owner(model, name): words["split"] for name, words in told["layers"].items() if "split" in words}
        for name in {**split, **cuts}:
            style: Any = split.get(name)
            layer, cut = model.get_submodule(name), cuts.get(name)
            if cut is None:
                style._apply(layer, mesh)
            elif style is not None and cut == list(astuple(style.split(mesh))):
                style.hook(layer, mesh)
            else:
                raise FormatError(f"{name} was split otherwise: {cut}", hint="pass the plan that it was saved under")


def load_dense(model: Any, folder: str | Path) -> None:
    """Give a model the weights of a dense checkpoint in safetensors, in one file or several with an index.

    Only names and shapes count: those of the model, or those of Llama, Qwen and OPT, where ``model.``,
    ``model.decoder.`` or ``decoder.`` may stand before a name on either side.  A head that the checkpoint lacks is that
    of the embedding.  Numbers are cast to the model's dtype.  FormatError as :func:`load`.
    """
    with located(user_loc()):
        files, at = _safetensors(), Path(folder)
        if (at / _INDEX).is_file():
            names = sorted(set(json.loads((at / _INDEX).read_text())["weight_map"].values()))
        else:
            names = sorted(file.name for file in at.glob("*.safetensors"))
        absent = [name for name in names if not (at / name).is_file()]
        if absent or not names:
            raise FormatError(
                f"{at} lacks {', '.join(absent) if names else _WEIGHTS}", hint="name a folder with all files of a model"
            )
        given: dict[str, Any] = {}
        for name in names:
            for key, tensor in files.load_file(at / name).items():
                if not key.endswith(_IDLE):
                    given[_plain(key)] = tensor
        if _HEAD not in given and _WORDS in given:
            given[_HEAD] = given[_WORDS]
        own = {_plain(name): name for name in model.state_dict()}
        if _HEAD not in own:
            given.pop(_HEAD, None)
        state = {own.get(name, name): tensor for name, tensor in given.items()}
        _fits(model, state)
        _fill(model, state)


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError as e:
        raise SparsegenError(
            "folders of weights need safetensors, which is not installed",
            hint="pip install safetensors; or torch.save(model.state_dict(), file)",
        ) from e
    return safetensors.torch


def _plain(name: str) -> str:
    """A name without what may stand before it."""
    return next((name[len(prefix) :] for prefix in _PREFIXES if name.startswith(prefix)), name)


def _part(model: Any) -> Split | None:
    """Which part of a model this rank has; None of a whole one."""
    for module in model.modules():
        if isinstance(module, (SparseLinear, QuantizedLinear)) and module.split is not None:
            return module.split
        for param in module.parameters(recurse=False):
            if hasattr(param, "full_tensor"):
                return Split(0, param.device_mesh.size(), param.device_mesh.get_local_rank())
    return None


def _owner(model: Any, name: str) -> str:
    """The name that a plan has for a layer: that of the FusedLinear it is in, or its own."""
    parent = name.rpartition(".")[0]
    return parent if isinstance(model.get_submodule(parent), FusedLinear) else name


def _names(part: Split | None) -> tuple[str, str]:
    """The names of a part's files."""
    if part is None:
        return _WEIGHTS, _MADE
    which = f"-{part.rank}-of-{part.ranks}."
    return _WEIGHTS.replace(".", which), _MADE.replace(".", which)


def _whole(tensor: Any) -> Any:
    """A dense tensor that torch has split (a DTensor), put together: each rank keeps all of it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _told(module: Any) -> dict[str, Any]:
    """How a sparse layer is made; empty for another module."""
    if not isinstance(module, (SparseLinear, QuantizedLinear)):
        return {}
    words: dict[str, Any] = {
        "in_features": module.in_features, "out_features": module.out_features, "bias": module.bias is not None
    }  # fmt: skip
    if module.split is not None:
        words["split"] = astuple(module.split)
    if isinstance(module, QuantizedLinear):
        dtype = torch.float16 if module.bias is None else module.bias.dtype
        return {**words, "height": module.height, "dtype": str(dtype).removeprefix("torch."), "bits": 8}
    pattern = {} if module.format == "bitmap" else {"pattern": module.format, **module.options}
    kind = str(module.dtype).removeprefix("torch.")
    return {**words, **pattern, "dense_above": module.dense_above, "dtype": kind}


def _built(model: Any, name: str, words: Mapping[str, Any]) -> Any:
    """A layer of zeros in the place of the model's own; FormatError if that is another."""
    old: Any = None
    try:
        old = model.get_submodule(name)
    except AttributeError:
        pass
    axis, ranks, _ = words.get("split", (0, 1, 0))
    sizes = (words["in_features"] * (ranks if axis else 1), words["out_features"] * (1 if axis else ranks))
    if (getattr(old, "in_features", None), getattr(old, "out_features", None)) != sizes:
        raise FormatError(
            f"{name} is {type(old).__name__ if old is not None else 'not in the model'}; the folder's is a layer of "
            f"{sizes[0]} inputs and {sizes[1]} outputs",
            hint="build the model as the one that was saved",
        )
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in words.items()
        if key not in ("bits", "split")
    }
    given |= {"dtype": _KINDS[words["dtype"]], "device": next(iter(old.state_dict().values())).device}
    made = QuantizedLinear(**given) if "bits" in words else SparseLinear(**given)
    return made.train(old.training)


def _fits(model: Any, state: Mapping[str, Any], less: tuple[str, ...] = ()) -> None:
    """FormatError unless these are the tensors of the model, but for those under the names ``less``."""
    own = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(less or ("\0",))}
    there = {name: tensor for name, tensor in state.items() if not name.startswith(less or ("\0",))}
    for name, tensor in own.items():
        if name not in there:
            raise FormatError(f"there is no tensor {name}", hint="build the model that the weights belong to")
        if there[name].shape != tensor.shape:
            raise FormatError(
                f"{name} has shape {tuple(there[name].shape)}, in the model {tuple(tensor.shape)}",
                hint="build the model with the sizes of the checkpoint's config.json",
            )
    if more := [name for name in there if name not in own]:
        raise FormatError(f"the model has no {more[0]}", hint="build the model that the weights belong to")


def _fill(model: Any, state: Mapping[str, Any]) -> None:
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise FormatError(str(error), hint="build the model as the one that was saved") from error
