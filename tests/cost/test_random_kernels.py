"""The cost model against 8694 kernels on one H200: how near it is, and that each of its parts earns its place.

A part is switched off by setting its figures to what they would be without it; then the mean |log(predicted /
measured)| over the families that use it must grow.  Parts that these kernels do not decide are in UNDECIDED, with why.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsegen.bench.regret import rank_correlation
from sparsegen.cost import terms, total
from sparsegen.cost.devices import DeviceProfile
from sparsegen.families import stencil2row
from sparsegen.families.base import Work
from sparsegen.products import cost as product_model
from sparsegen.registry import families
from tests.cost.random_kernels import H200, Kernel, fitted_products, products, stencils

PRODUCTS, MODEL = ("bitmap", "vector"), "cost.terms"
Patches = tuple[tuple[str, str, Any], ...]  #: module, name, what stands for it


@cache
def kernels(*families: str) -> tuple[Kernel, ...]:
    """Those of some families; all without any."""
    return tuple(k for k in (*stencils(), *products()) if not families or k.family in families)


def errors(found: tuple[Kernel, ...], profile: DeviceProfile = H200) -> Any:
    """log(predicted / measured) of each."""
    forget()
    return np.array([k.error(profile) for k in found])


def forget() -> None:
    """What the model remembers of the figures as they were."""
    total._rest_time.cache_clear()
    total._padded_time.cache_clear()


@cache
def all_usual() -> Any:
    """The same of all kernels and the model as it is."""
    return errors(kernels())


def usual(*families: str) -> Any:
    """Those of some families; all without any."""
    return all_usual()[[not families or k.family in families for k in kernels()]]


# -------------------------------------------------------------------------------------------------------- how near
def spread(*families: str) -> tuple[float, float]:
    """Median and 90th percentile of |predicted / measured - 1|."""
    off = np.abs(np.expm1(usual(*families)))
    return float(np.median(off)), float(np.quantile(off, 0.9))


def test_near_all() -> None:
    found = spread()
    assert len(kernels()) >= 7700 and found[0] <= 0.07 and found[1] <= 0.22


@pytest.mark.parametrize(
    ("family", "count", "median", "most"),
    [
        ("direct", 249, 0.08, 0.245),
        ("tiled", 717, 0.065, 0.225),
        ("stencil2row", 2920, 0.105, 0.265),
        ("stream", 748, 0.04, 0.14),
        ("patches", 105, 0.05, 0.13),
        ("column", 934, 0.07, 0.17),
        ("march", 57, 0.03, 0.19),
        ("slab", 86, 0.035, 0.15),
        ("toeplitz", 654, 0.07, 0.175),
        ("lowrank", 166, 0.075, 0.19),
        ("bitmap", 2040, 0.055, 0.15),
        ("vector", 159, 0.06, 0.15),
        ("dense", 9, 0.1, 0.21),
    ],
)
def test_near_each_family(family: str, count: int, median: float, most: float) -> None:
    found = spread(family)
    assert len(kernels(family)) == count and found[0] <= median and found[1] <= most


def test_the_last_seed_is_as_near() -> None:
    """404: predicted before it was used for a fit, as it has been since."""
    kept = np.array([k.seed == 404 for k in kernels()])
    off = np.abs(np.expm1(usual()))
    assert kept.sum() >= 900 and np.median(off[kept]) <= 0.09 and np.quantile(off[kept], 0.9) <= 0.30


def test_the_order_of_each_problem_and_the_first_of_it() -> None:
    cases = defaultdict[tuple[bool, str], list[tuple[float, float]]](list)
    for k, error in zip(kernels(), usual(), strict=True):
        stencil = k.family in families("stencil")
        if k.whole:
            cases[stencil, k.case].append((k.seconds * np.exp(error), k.seconds))
    for stencil in (True, False):
        found = [points for (kind, _), points in cases.items() if kind == stencil]
        assert len(found) >= 40
        assert np.median([rank_correlation(*zip(*points, strict=True)) for points in found]) >= 0.9
        regrets = [min(points)[1] / min(seconds for _, seconds in points) for points in found]
        assert np.median(regrets) <= 1.025 and np.quantile(regrets, 0.9) <= 1.10


# ------------------------------------------------------------------------------------------ parts, and doing without
def figures(module: str, **values: Any) -> Patches:
    """Figures of a module under ``sparsegen``."""
    return tuple((module, name, value) for name, value in values.items())


def without(**values: Any) -> Patches:
    """Every family's work with some of it replaced, or with no cycles of a unit (``unit=``)."""

    def changed(work: Any) -> Any:
        def other(*args: Any) -> Work:
            found = work(*args)
            if "unit" not in values:
                return dataclasses.replace(found, **values)
            phases = tuple({n: 0 if n == values["unit"] else c for n, c in p.items()} for p in found.phases)
            return dataclasses.replace(found, phases=phases)

        return other

    modules = {name: f"families.{name}" for name in families("stencil")}
    return tuple((m, "work", changed(import_module(f"sparsegen.{m}").work)) for m in modules.values())


def no_rim(*_: object) -> dict[str, float]:
    return {"rim_blocks": 0.0, "rim_b": 1.0, "rim_cycles": 0.0}


TILES, STAY = ("tiled", "stencil2row", "lowrank"), ("tiled", "stencil2row", "stream")
EVERY = tuple(families("stencil"))
NO_STATIC = (
    figures(MODEL, STATIC=1.0)
    + figures("families.column", STATIC=1.0, STATIC_ODD=1.0)
    + tuple(p for name in ("patches", "toeplitz", "lowrank") for p in figures(f"families.{name}", STATIC=1.0))
)
#: Term -> the families that have it, and what takes it away: figures, or a profile in which it takes no time.
STENCIL_TERMS: dict[str, tuple[tuple[str, ...], Patches | dict[str, Any]]] = {
    "fma": (EVERY, without(unit="fma")),
    "pitch": (TILES, figures(MODEL, HALF_SECTORS=1.0)),
    "static": (EVERY, NO_STATIC),
    "l2": (EVERY, {"l2_bytes_per_clk_sm": 1e9}),
    "l1": (("tiled", "stencil2row", "stream"), figures(MODEL, L1_HOLD=0.0)),
    "issue": (EVERY, without(unit="issue")),
    "latency": (EVERY, without(latency=0)),
    "fetch": (EVERY, without(turns=0)),
    "start": (("direct", "tiled", "stencil2row", "lowrank"), figures(MODEL, APART=0.0)),
    "setup": (("stencil2row", "patches", "toeplitz", "lowrank"), without(setup=0)),
    "exposed": (EVERY, without(share=1e9)),
    "edge": (TILES, figures(MODEL, EDGE=0.0)),
    "rim": (EVERY, figures("cost.stencil", _rim=no_rim)),
    "launch": (EVERY, {"launch_s": 1e-12}),
}
_P = "products.cost"
PRODUCT_TERMS: dict[str, tuple[tuple[str, ...], Patches | dict[str, Any]]] = {
    "hbm": (PRODUCTS, {"hbm_read_gbs": 1e9}),
    "l2": (PRODUCTS, {"l2_bytes_per_clk_sm": 1e9}),
    "ring": (PRODUCTS, figures(_P, LOADED=0.0)),
    "chain": (PRODUCTS, figures(_P, CHAIN=0.0, CHAIN_TILE=0.0)),
    "decode": (
        PRODUCTS,
        figures(_P, FRAGMENT=0.0, SCAN=0.0, MULTIPLY=0.0, TURN=0.0, READ=0.0, READ_ONE=0.0, X_LOAD=0.0),
    ),
    "tensor": (PRODUCTS, {"cpi_table": tuple((shape, 1e-9) for shape, _ in H200.cpi_table)}),
    "shared": (PRODUCTS, figures(_P, WAVEFRONTS=0.0, X_WAVEFRONTS=0.0)),
    "exposed": (PRODUCTS, figures(_P, NORM=50.0)),
    "reduce": (PRODUCTS, figures(_P, SUMS=0.0, EXCHANGE=0.0)),
    "latency": (PRODUCTS, figures(_P, START=0.0)),
    "launch": (PRODUCTS, {"launch_s": 1e-12}),
}
#: Module -> its figures, each with the value that does without it.
OWN: dict[str, dict[str, Any]] = {
    "column": {"TURN": 0, "LINE": 0, "LEVEL": 0, "MASK": 0, "MIRROR": 0, "STATIC": 1, "STATIC_ODD": 1, "ILP": 1,
               "CHAIN": 0, "CHAIN_MASK": 0, "COPY_WAVES": 1, "THROUGH": 0, "SINGLE": 0},
    "direct": {"POINT": 0, "ROW": 0, "EDGE_ROW": 0, "WARP": 0, "ILP": terms.ILP, "UNALIGNED": 1},
    "lowrank": {"STATIC": 1, "ILP": terms.ILP, "NARROW": 0, "MULTIPLY": 0, "COPY": 0, "STORE": 0, "EDGE": 0,
                "COPY_WAVES": 1},
    "patches": {"STATIC": 1, "TURN": 0, "MULTIPLY": 0, "COPY": 0, "STORE": 0, "COPY_WAVES": 1},
    "slab": {"DRIFT": 1e12, "ODD": 1, "SINGLE": 0},
    "stencil2row": {"USED": dict.fromkeys(stencil2row.USED, 1.0), "LUT_WAIT": 0, "LUT_WAIT_FAR": 0, "SYNC": 0,
                    "FILL": dict.fromkeys(("lut", "computed", "predicate"), 0),
                    "COPY": 0, "PLANE": 0, "OPERAND": 0, "MULTIPLY": 0, "SMALL": 0, "FMA": 0, "RAW": 0,
                    "FMA_WAVES": 0, "WEIGHTS": 0, "FAR": 1, "BRANCH": 0, "IN_FLIGHT_SHARED": 1},
    "stream": {"TURN": 0, "PIECE": 0, "OWN": 0, "SHUFFLE": 0, "ILP": 1},
    "tiled": {"TOGETHER": 0, "COPY": 0, "LOAD": 0, "TILE": 0, "EDGE": 0, "COPY_WAVES": 1},
    "toeplitz": {"STATIC": 1, "ILP": terms.ILP, "READ": 0, "MULTIPLY": 0, "STORE": 0, "TILE": 0, "COPY_WAVES": 1},
}  # fmt: skip
#: Figures that families share: which, and the value that does without.
SHARED: dict[str, tuple[tuple[str, ...], float]] = {
    "REACH": (EVERY, 1.0),
    "STATIC": (STAY, 1.0),
    "WAITS": (("direct", "tiled", "stencil2row", "patches", "toeplitz"), 0.0),
    "ILP": (("tiled", "stencil2row", "patches"), 1.0),
    "APART": (("direct", "tiled", "stencil2row", "lowrank"), 0.0),
    "RIM": (tuple(name for name in families("stencil") if name != "column"), 0.0),
    "TAP": (tuple(name for name in families("stencil") if name != "column"), 0.0),
}
PRODUCT_FIGURES: dict[str, float] = {
    "FRAGMENT": 0, "SCAN": 0, "MULTIPLY": 0, "TURN": 0, "READ": 0, "READ_ONE": 0, "WAVEFRONTS": 0, "PARTIES": 0,
    "X_WAVEFRONTS": 0, "X_LOAD": 0, "UNEVEN": 0, "LOADED": 1, "CHAIN_TILE": 0, "EXCHANGE": 0, "SUMS": 0, "BESIDE": 0,
}  # fmt: skip
PARTS: dict[str, tuple[tuple[str, ...], Patches | dict[str, Any]]] = {
    **{f"term {name}": part for name, part in STENCIL_TERMS.items()},
    "terms.LOADED": (EVERY, figures("cost.terms", LOADED=1.0)),
    **{f"term of products {name}": part for name, part in PRODUCT_TERMS.items()},
    **{f"terms.{name}": (users, figures(MODEL, **{name: off})) for name, (users, off) in SHARED.items()},
    **{
        f"{family}.{name}": ((family,), figures(f"families.{family}", **{name: off}))
        for family, own in OWN.items() for name, off in own.items()
    },
    **{f"products.{name}": (PRODUCTS, figures(_P, **{name: off})) for name, off in PRODUCT_FIGURES.items()},
    **{f"products.{name}": (("dense",), figures(_P, **{name: off}))
       for name, off in {
           "DENSE_START": 0.0, "DENSE_SHARE": 1.0, "DENSE_MISALIGNED": dict.fromkeys((2, 4, 8), 1.0),
       }.items()},
}  # fmt: skip
_COUNTED = "counted with hardware counters; the others alone come a little nearer"
_NEVER = "never the longest here: what else is counted is always longer"
#: Parts without which the error does not grow here, and why.
UNDECIDED: dict[str, str] = {
    "stencil2row.SYNC": _COUNTED,
    "term of products ring": _NEVER,
    "lowrank.STATIC": "rings are not searched, none is here; measured by hand they are predicted 13 % too slow",
    "stencil2row.FAR": "transform=explicit is not searched; see its one measured kernel (test_stencil_cost)",
    "stencil2row.BRANCH": "before sm_90 only: the paper's order on the A100",
    "toeplitz.READ": _COUNTED,
    "toeplitz.MULTIPLY": _COUNTED,
    "toeplitz.TILE": _COUNTED,
    "products.LOADED": _NEVER,
    "products.BESIDE": "with none as near; with all of it (1) far worse, see below",
}


def growth(name: str, patch: pytest.MonkeyPatch) -> float:
    """By how much the mean |log(predicted / measured)| grows without a part."""
    families, off = PARTS[name]
    profile = dataclasses.replace(H200, **off) if isinstance(off, dict) else H200
    for module, figure, value in () if isinstance(off, dict) else off:
        found = import_module(f"sparsegen.{module}")
        if figure == "work":  # a family holds its functions
            patch.setitem(found.FAMILY.__dict__, figure, value)
        else:
            patch.setattr(found, figure, value)
    now = np.mean(np.abs(errors(kernels(*families), profile)))
    patch.undo()
    forget()
    return float(now - np.mean(np.abs(usual(*families))))


@pytest.mark.parametrize("name", [name for name in PARTS if name not in UNDECIDED])
def test_each_part_earns_its_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert growth(name, monkeypatch) > 0


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_is_undecided_does_next_to_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that would do harm has to go; one that begins to earn its place leaves the list."""
    assert -0.006 <= growth(name, monkeypatch) <= 0


def test_every_term_is_a_part() -> None:
    """All but the paper's own; ``transform`` belongs to a form that only the ablation has (test_stencil_cost), ``walk``
    to products in a loop (test_looped)."""
    assert set(STENCIL_TERMS) == set(terms.REASONS) - {"tensor", "hbm", "shared", "transform"}
    assert set(PRODUCT_TERMS) == set(product_model.REASONS) - {"walk"}


def test_blocks_beside_others_cost_less_than_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_model, "BESIDE", 1.0)
    assert np.mean(np.abs(errors(kernels(*PRODUCTS)))) > np.mean(np.abs(usual(*PRODUCTS)))


def test_what_is_said_of_the_fit_of_products_is_in_the_data() -> None:
    fitted, predicted = fitted_products()
    document = (Path(__file__).parents[2] / "docs" / "products.md").read_text(encoding="utf-8")
    for text in (document, str(product_model.__doc__)):
        said = " ".join(text.split())
        assert f"fitted to {fitted:,} kernels" in said and f"{predicted:,} more were predicted before" in said
