"""The cases of the freeze, kept as text (:mod:`tests.freeze.draw` drew them), and their programs, lowered anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sparsegen as sg
from sparsegen.bench import packed
from sparsegen.formats.matrix import KINDS
from sparsegen.ir.text import print_module
from sparsegen.pipelines import Program
from sparsegen.problems.product import Variant
from sparsegen.problems.sddmm import Variant as SampledVariant
from tests import mixed_kit, nm_kit
from tests.attention_kit import mask
from tests.csr_kit import ragged
from tests.products_kit import matrix
from tests.sddmm_kit import mask as sampled_mask
from tests.updates import burgers, gray_scott, heat, life, wave
from tests.vectors_kit import floats, quantized

FILE = Path(__file__).parent / "programs.json.xz"
UPDATE_FORMS = {"wave": wave, "heat": heat, "gray_scott": gray_scott, "life": life, "burgers": burgers}
BOUNDARIES: dict[str, Any] = {
    "periodic": sg.periodic, "frozen": sg.frozen, "neumann": sg.neumann, "dirichlet": sg.dirichlet(0.5)
}  # fmt: skip
Case = dict[str, Any]


def weights(case: Case) -> Any:
    """The weights of a case: a box, a star, or an outer product, from its seed."""
    rng, edge = np.random.default_rng(case["seed"]), 2 * case["radius"] + 1
    axes = len(case["shape"])
    w = rng.uniform(0.1, 1.0, (edge,) * axes)
    if case["form"] == "star":
        w[np.count_nonzero(np.indices(w.shape) - case["radius"], axis=0) > 1] = 0.0
    elif case["form"] == "outer":
        w = np.multiply.outer(rng.uniform(0.1, 1.0, edge), rng.uniform(0.1, 1.0, edge))
    return w / w.sum()


def described(case: Case) -> Any:
    """The stencil or the update of a case."""
    if case["kind"] == "update":
        return UPDATE_FORMS[case["form"]](dtype=case["dtype"], boundary=BOUNDARIES[case["boundary"]])
    return sg.Stencil.from_weights(weights(case), BOUNDARIES[case["boundary"]], dtype=case["dtype"])


def programs(case: Case) -> Iterator[Program]:
    """Every program of a case's kernel, in the order of its plan."""
    if case["kind"] == "spmm":
        product = sg.spmm(encoded(case), n=case["n"], **case["epilogue"])
        kernel = sg.compile(product, device=case["device"], backend="emulator", schedule=case["schedule"])
        yield kernel._programs.get(1, Variant(*case["variant"]))
        return
    if case["kind"] == "sddmm":
        kernel = sg.compile(sampled(case), device=case["device"], backend="emulator", schedule=case["schedule"])
        yield kernel._programs.get(1, SampledVariant(*case["variant"]))
        return
    if case["kind"] == "attention":
        kernel = sg.compile(attention(case), device=case["device"], backend="emulator", schedule=case["schedule"])
        yield kernel._plan(1).main
        return
    shape, steps = tuple(case["shape"]), case["steps"]
    made: Any = sg.compile(
        described(case), shape, steps, device=case["device"], backend="emulator", schedule=case["schedule"]
    )
    for program, _ in made._plan(steps).programs:
        yield program


def sampled(case: Case) -> Any:
    """The sampled product of a case."""
    (m, n), options = case["shape"], case["options"]
    kept = sampled_mask(m, n, options["height"], case["sparsity"])
    return sg.sddmm(kept, k=case["k"], dtype=case["dtype"], **options)


def attention(case: Case) -> Any:
    """The attention of a case."""
    return sg.attention(mask(*case["shape"], case["height"], case["share"]), **case["how"])


def encoded(case: Case) -> Any:
    """The matrix of a case: ragged rows in CSR, of which the longest may be cut, an N:M pattern, vectors,
    dense tiles and other entries, or bitmap tiles."""
    (m, k), dtype = case["shape"], case["dtype"]
    if "tile" in case:
        return mixed_kit.matrix(m, k, case["tile"], dtype, case["delta"], format=case.get("format", "hybrid"))
    if "pattern" in case:
        n, width, *vector = case["pattern"]
        return nm_kit.matrix(m, k, n, width, vector, dtype)
    if "height" in case:
        made = quantized if KINDS[dtype].is_int else floats
        return made((m, k), dtype, case["height"], case["kept"])
    if "mean" in case:
        return sg.sparse(ragged(m, k, case["mean"], case["seed"], case["full"]), format="csr", dtype=dtype)
    return matrix(m, k, case["sparsity"], dtype, case.get("format", "bitmap"))


def text(case: Case) -> str:
    """The printed functions of all programs of a case."""
    return "\n".join(print_module(program.warp, tables=False) for program in programs(case))


def frozen() -> list[tuple[Case, str]]:
    """The cases with the text that their programs had when they were frozen."""
    return [(case, printed) for case, printed in json.loads(packed.read(FILE))]
