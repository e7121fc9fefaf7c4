"""The model ranks ConvStencil's own alternatives on the A100 as the paper measured them there.

Only orders: what the model predicts is compared with measurements elsewhere (test_stencil_cost.py).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench import ablation
from sparsegen.cost.cost import Cost
from sparsegen.cost.devices import DeviceProfile, load_profile
from sparsegen.cost.search import rank
from sparsegen.explain.paper import FORMS, forms, fusion
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError

A100, H200 = load_profile("a100"), load_profile("h200")
#: The stencils of the paper's ablation, and its sizes of them; and Box-2D49P, whose edge is 7 as it is.
CASES = {
    "Heat-1D": ((3,), (1, 102_400_000)),
    "Box-2D9P": ((3, 3), (10240, 10240)),
    "Box-2D49P": ((7, 7), (10240, 10240)),
    "Box-3D27P": ((3, 3, 3), (768, 768, 768)),
}
case = pytest.mark.parametrize("name", CASES)


def footprint(name: str) -> Footprint:
    """Of weights with no structure that other families could make use of."""
    extents = CASES[name][0]
    return Footprint.of(sg.Stencil.from_weights(np.random.default_rng(1).random(extents)).gridded)


@case
def test_the_papers_order_on_the_a100(name: str) -> None:
    """stencil2row before im2row, tensor cores before CUDA cores at equal fusion, then padding, then dirty bits."""
    fp, shape = footprint(name), CASES[name][1]
    fuse = fusion(fp, A100, shape, steps=100)
    assert fuse == (1 if name == "Box-2D49P" else 3)  # the edge is 7
    found = forms(fp, A100, shape, fuse)
    legal = [c for c in found if isinstance(c, Cost)]
    assert len(legal) == len(FORMS)
    for i, ((words, _), (later, _)) in enumerate(pairwise(FORMS)):
        before, now = found[i], found[i + 1]
        least = 0.98 if ablation.GAINS[fp.axes][i] <= 0.01 else 1.0  # 1 % is finer than the model
        if not isinstance(before, ScheduleError):
            assert isinstance(now, Cost) and now.rate > least * before.rate, f"{later} is no faster than {words}"


@case
def test_the_steps_with_the_largest_gain_in_the_paper_have_it_here(name: str) -> None:
    """On two and three axes its first two steps gain more than the last two; on one they are all but bound by DRAM."""
    fp, shape = footprint(name), CASES[name][1]
    found = forms(fp, A100, shape, fusion(fp, A100, shape, 100) or 1)
    gains = [b.rate / a.rate - 1 for a, b in pairwise(found) if isinstance(a, Cost) and isinstance(b, Cost)]
    published = ablation.GAINS[fp.axes]
    assert len(published) == len(FORMS) - 1 and min(published[:2]) > max(published[2:])
    assert min(gains[:-2]) > max(gains[-2:])


@pytest.mark.parametrize("name", ["Box-2D9P", "Box-3D27P"])
def test_at_equal_fusion_tensor_cores_come_first_for_every_fusion(name: str) -> None:
    fp, shape = footprint(name), CASES[name][1]
    for fuse in (1, 2, 3):
        by_form = dict(zip((name for name, _ in FORMS), forms(fp, A100, shape, fuse), strict=True))
        cores, tensor = by_form["implicit stencil2row"], by_form["tensor cores"]
        assert isinstance(cores, Cost) and isinstance(tensor, Cost) and tensor.rate > cores.rate


@pytest.mark.parametrize("name", ["Heat-1D", "Box-2D9P", "Box-3D27P"])
@pytest.mark.parametrize("device", [A100, H200], ids=["a100", "h200"])
def test_temporal_blocking_beats_them_all(name: str, device: DeviceProfile) -> None:
    fp, shape = footprint(name), CASES[name][1]
    best = rank(fp, device, shape, limit=100).costs[0]
    alternatives = [c for c in forms(fp, device, shape, 3) if isinstance(c, Cost)]
    assert best.rate > max(c.rate for c in alternatives) and best.schedule.family != "stencil2row"


def test_the_forms_are_those_of_the_ablation() -> None:
    """The bench's forms, but for the lookup table, which comes with its last one."""
    assert len(FORMS) == len(ablation.FORMS)
    for (_, words), line in zip(FORMS, ablation.FORMS.values(), strict=True):
        pairs = (dict(word.split("=") for word in text.split() if "=" in word) for text in (words, line))
        own, theirs = pairs
        assert {key: theirs.get(key, own[key]) for key in own} == own
