"""``sparsify``: a model's linear layers in sparse formats, in place, and a report of what became of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, Final

import torch

from sparsegen.arguments import one_of, positive
from sparsegen.callsite import located, user_loc
from sparsegen.cost.devices import DeviceProfile
from sparsegen.ir.errors import ProductError
from sparsegen.pruning import prune
from sparsegen.target import resolve
from sparsegen.torch.calibration import Seen, watch
from sparsegen.torch.config import Rule, SparseConfig
from sparsegen.torch.fused import FusedLinear, outermost
from sparsegen.torch.linear import SparseLinear
from sparsegen.torch.predict import dense_time, measured, sparse_times
from sparsegen.torch.prune import taken
from sparsegen.torch.quantized import QuantizedLinear
from sparsegen.torch.report import Report, Row

_FALLBACKS: Final = ("auto", "never")


def sparsify(
    model: Any,
    config: Any = None,
    *,
    calibration: Iterable[Any] | None = None,
    tokens: Iterable[int] = (1, 8, 16),
    fallback: str = "auto",
    device: Any = "auto",
    mesh: Any = None,
    plan: Any = None,
) -> Report:
    """Replace ``torch.nn.Linear`` layers of a model by sparse ones, in place; back comes what became of each.

    ``config``: a :class:`SparseConfig`, a :class:`Rule`, several, or dicts with the same words; without one 60 % of the
    weights of all linear layers but ``lm_head`` go.  Weights that stay are those of the largest |w|, or, with
    ``calibration``, of the largest |w| times the norm of their input (Wanda): it yields inputs of the model, each a
    tensor, a tuple of arguments or a dict of named ones.  Reports then have the error of each layer's outputs.

    A layer stays dense where the cost model predicts no gain, all numbers of ``tokens`` together, unless
    ``fallback="never"``.  ``device`` names the GPU that it predicts for, as in ``sparsegen.compile``.  Layers that a
    rule names and that cannot be sparse stay dense, and the report says why: shared weights, embeddings, subclasses of
    Linear, layers with hooks, other dtypes, weights that are not finite.

    ``mesh``, a torch DeviceMesh of one axis, and ``plan``, styles by names as ``parallelize_module`` of torch has them
    (globs of whole names): each rank keeps its part of these layers (:mod:`sparsegen.torch.parallel`).  All ranks call
    it with the same model; what stays dense is split as well, by torch, and what was sparse before.  The report is then
    of this rank's parts.

    ProductError for what is no model, a config or words that are none, and a rule whose names no layer has; ArrayError
    for calibration that yields nothing usable; DeviceError for an unknown device.
    """
    with located(user_loc()):
        rules = SparseConfig.of(config)
        if not isinstance(model, torch.nn.Module) or isinstance(model, torch.nn.Linear):
            raise ProductError(
                f"a {type(model).__qualname__} has no layers to replace",
                hint="pass a torch.nn.Module that holds them; one layer: SparseLinear.from_linear(layer)",
            )
        counts = tuple(positive(n, "tokens", ProductError) for n in tokens)
        one_of(fallback, _FALLBACKS, "fallback", ProductError)
        profile = resolve(device, "auto" if device == "auto" else "emulator").profile
        layers = dict(_layers(model))
        _check_names(rules, [*layers] if config is not None else None)
        ready = {name: m for name, m in outermost(model) if isinstance(m, (SparseLinear, QuantizedLinear, FusedLinear))}
        split = styles_of(mesh, plan, [*layers, *ready])
        chosen = {name: rules.rule(name, layer.weight.numel()) for name, layer in layers.items()}
        asked = {name: rule for name, rule in chosen.items() if rule is not None and rule.pattern != "dense"}
        shared = _shared(model)
        refused = {name: why for name, rule in asked.items() if (why := _refusal(layers[name], rule, shared))}
        wanted = {name: rule for name, rule in asked.items() if name not in refused}
        for name, style in split.items():
            rule, ranks = wanted.get(name), style.split(mesh).ranks
            if name in ready:
                style.able(ready[name], mesh)
            elif rule is None:
                style.check(type(layers[name]))
            else:
                kind = QuantizedLinear if rule.bits else SparseLinear
                style.check(kind, tuple(layers[name].weight.shape), rule.units, ranks)
        seen = {} if calibration is None else watch(model, {name: layers[name] for name in wanted}, calibration)
        rows: list[Row] = []
        for name, layer in layers.items():
            if name in wanted:
                cut = split.get(name), mesh
                made, row = _made(name, layer, wanted[name], seen.get(name), counts, profile, fallback == "auto", cut)
                if made is not None:
                    parent, _, last = name.rpartition(".")
                    setattr(model.get_submodule(parent), last, made)
                rows.append(row)
            else:
                why = "a rule says so" if chosen[name] else "no rule names it"
                rows.append(_dense(name, layer, refused.get(name, why)))
            if name in split:
                split[name].finish(model.get_submodule(name), mesh)
        for name, layer in ready.items():
            if name in split:
                split[name].cut(layer, mesh)
                split[name].hook(layer, mesh)
        return Report(tuple(rows), counts, profile.name)


def styles_of(mesh: Any, plan: Any, names: list[str]) -> dict[str, Any]:
    """The style of each layer of a plan that splits a model over a mesh, if there is one; ProductError as of
    :func:`sparsegen.torch.parallel.styles`, and for one without the other."""
    if (mesh is None) != (plan is None):
        raise ProductError("mesh and plan go together", hint="pass both, or none of them")
    if plan is None:
        return {}
    from sparsegen.torch.parallel import styles  # torch's distributed tensors, which take long to load

    return styles(plan, names)


def _layers(model: Any) -> Iterator[tuple[str, Any]]:
    """Modules with a matrix of weights, by name; one that has several names comes under each."""
    for name, module in model.named_modules(remove_duplicate=False):
        weight = getattr(module, "_parameters", {}).get("weight")
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)) or (weight is not None and weight.ndim == 2):
            yield name, module


def _check_names(rules: SparseConfig, names: list[str] | None) -> None:
    """ProductError for a rule that speaks of no layer."""
    for rule in rules.rules if names is not None else ():
        if names is not None and not any(rule.named(name) for name in names):
            raise ProductError(
                f"no layer has a name like {', '.join(rule.names)}",
                hint="names are whole, as model.named_modules() has them; here: " + ", ".join(names[:8]),
            )


def _shared(model: Any) -> Counter[int]:
    """Where weights lie -> how many parameters of modules lie there; a module with two names counts twice."""
    return Counter(p.data_ptr() for _, p in model.named_parameters(remove_duplicate=False) if not p.is_meta)


def _refusal(layer: Any, rule: Rule, shared: Counter[int]) -> str:
    """Why a layer cannot be sparse, with the remedy; empty if it can."""
    if type(layer) is not torch.nn.Linear:
        return f"{type(layer).__name__} is no plain Linear, and stays as it is"
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks:
        return "has hooks, which would be lost: register them afterwards"
    weight = layer.weight
    if weight.is_meta or not weight.numel():
        return "holds no numbers: load the weights first"
    if shared[weight.data_ptr()] > 1:
        return "its weights are shared: give it its own, layer.weight = Parameter(layer.weight.clone())"
    known = taken("nm") if rule.pattern == "nm" or rule.bits else taken("bitmap")
    if weight.dtype not in known:
        return f"weights are {str(weight.dtype).removeprefix('torch.')}: model.half() or model.bfloat16() first"
    if not bool(weight.isfinite().all()):
        return "weights hold a NaN or an infinity: mend the checkpoint"
    return ""


def _made(
    name: str, layer: Any, rule: Rule, seen: Seen | None, tokens: tuple[int, ...], profile: DeviceProfile, auto: bool,
    cut: tuple[Any, Any],
) -> tuple[Any, Row]:  # fmt: skip
    """The sparse layer (None where there is no gain) and its row; ``cut``: its style if it is split, and the mesh."""
    made = _sparse(layer, rule, None if seen is None else seen.norms)
    error, why = None, "" if seen is None else "calibration did not reach it: by magnitude"
    if seen is not None and seen.rows is not None:
        error, why = _error(layer, made, seen.rows), ""
    style, mesh = cut
    if style is not None:
        style.cut(made, mesh)
    shape = (made.out_features, made.in_features)
    before = {n: dense_time(shape, layer.weight.dtype, n, profile) for n in tokens}
    after = sparse_times(made, tokens, profile)
    gains = sum(after.values()) < sum(before.values())
    if auto and not (gains if style is None else style.all(gains, mesh)):
        return None, _dense(name, layer, "no gain is predicted", before, after)
    took, weights = measured(made, tokens, layer.weight.dtype), prod(shape)
    row = Row(
        name, str(rule), 1 - made.nnz / weights, weights * layer.weight.itemsize,
        sum(buffer.nbytes for key, buffer in made.named_buffers() if key != "dense"), before, after, took, error, why,
    )  # fmt: skip
    return made, row


def _sparse(layer: Any, rule: Rule, importance: Any) -> Any:
    """The layer in the pattern of a rule."""
    words: dict[str, Any] = {} if importance is None else {"importance": importance}
    if rule.pattern == "nm":
        return SparseLinear.from_linear(layer, pattern="nm", n=rule.n, m=rule.m, vector=rule.vector, **words)
    if rule.pattern == "vector":
        words["vector"] = rule.vector or 8
    if rule.bits:
        height = words.pop("vector")
        return QuantizedLinear.from_linear(layer, rule.share, height=height, **words)
    keep = prune(layer.weight, rule.pattern, sparsity=rule.share, **words) != 0
    return SparseLinear.from_linear(layer, mask=keep)


def _error(layer: Any, made: Any, rows: Any) -> float:
    """|y' - y| / |y| of the layers' outputs for these rows, which are cast to the weights' dtype; 0 / 0 is 0."""
    x = rows.to(layer.weight.dtype)
    with torch.no_grad():
        y = layer(x).float()
        off = (made(x).float() - y).norm()
    return float(off / y.norm()) if bool(off) else 0.0


def _dense(name: str, layer: Any, why: str, before: Any = None, after: Any = None) -> Row:
    """The row of a layer that stays as it is."""
    size = layer.weight.nbytes
    return Row(name, "dense", 0.0, size, size, before or {}, after or {}, {}, None, why)
