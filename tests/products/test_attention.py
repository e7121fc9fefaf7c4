"""Sparse attention: right for any size, pattern, schedule and GPU; what its tables say; what is refused and said."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import sparsegen as sg
from sparsegen.calls.attention import AttentionCalls
from sparsegen.calls.base import Calls
from sparsegen.ir.errors import ArrayError, ProductError, ScheduleError
from sparsegen.ir.numbers.attention import FIRST, SECOND, own_slot, part_keys
from sparsegen.ir.swizzle import swizzled
from sparsegen.products import attention_cost, unfused_cost
from sparsegen.products.attention_tasks import Cut, counted, places, records
from sparsegen.products.sampling import vectors_of
from tests.attention_kit import called, inputs, mask, off, program


def described(m: int, n: int, height: int = 8, share: float = 0.3, **how: Any) -> Any:
    """Attention of two heads of 64, of integers."""
    return sg.attention(mask(m, n, height, share), **{"heads": 2, "d": 64, "quantized": True, **how})


def line(parts: int = 2, groups: int = 2, warps: int = 2, steps: int = 2) -> str:
    return f"fused parts={parts} groups={groups} warps={warps} keys={32 * steps}"


#: What a line with one part of the keys, one with several, and one without parts are.
LINES = [line(1), line(3), "unfused"]


# ------------------------------------------------------------------------------------------------ right
@pytest.mark.parametrize("words", ["fused", "unfused"])
@pytest.mark.parametrize(("m", "n"), [(64, 64), (61, 100), (8, 33), (1, 1), (100, 7), (129, 257), (16, 1100)])
def test_any_size(m: int, n: int, words: str) -> None:
    """Queries that no vector divides, keys that no step or box does, and single ones."""
    called(described(m, n, share=0.3 if m > 1 else 1.0), words)


@pytest.mark.parametrize("d", [32, 64, 128])
@pytest.mark.parametrize("device", ["h200", "a100", "rtx4090"])
def test_any_width_on_any_gpu(d: int, device: str) -> None:
    for words in (*(line(steps=steps) for steps in (1, 2, 4)), *(f"unfused wide={wide}" for wide in (32, 64, 128))):
        called(described(70, 150, d=d), words, device)


@pytest.mark.parametrize("height", [2, 4, 8])
@pytest.mark.parametrize("words", LINES)
def test_vectors_of_any_height(height: int, words: str) -> None:
    """Rows of a task that its vector does not have are neither read nor written."""
    called(described(45, 200, height), words)


@pytest.mark.parametrize("words", [line(steps=4), "unfused"])
@pytest.mark.parametrize("height", [8, 2])
@pytest.mark.parametrize("softmax_bits", [8, 16])
def test_bits_of_the_exponentials(softmax_bits: int, height: int, words: str) -> None:
    called(described(64, 300, height, softmax_bits=softmax_bits), words)


@pytest.mark.parametrize("most", [1, 8])
@pytest.mark.parametrize("stages", [2, 5])
def test_scores_in_any_tasks(most: int, stages: int) -> None:
    """A row's scores are shared by several warps, or have one."""
    called(described(61, 300), f"unfused most={most} stages={stages}")


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("device", ["h200", "a100"])
@pytest.mark.parametrize("words", LINES)
def test_floats_are_quantised_first(bits: int, device: str, words: str) -> None:
    """By 8 bits as near as that gets normal numbers; of any bits as the reference has it."""
    what = sg.attention(mask(61, 200), heads=2, d=64, batch=2, bits=bits)
    kernel, given = sg.compile(what, device=device, schedule=words, backend="emulator"), inputs(what)
    reference = sg.compile(what, device=device, backend="reference")(**given)
    assert off(kernel(**given), reference.astype(float)) < 0.01
    if bits == 8:
        called(what, words, device)


@pytest.mark.parametrize("words", LINES)
def test_arrays_of_zeros_have_scale_one(words: str) -> None:
    what = sg.attention(mask(40, 200), heads=1, d=32)
    kernel, given = sg.compile(what, device="h200", backend="emulator", schedule=words), inputs(what)
    for name in "qkv":
        nothing = {**given, name: np.zeros_like(given[name])}
        assert (
            off(kernel(**nothing), sg.compile(what, device="h200", backend="reference")(**nothing).astype(float)) < 0.01
        )


@pytest.mark.parametrize("words", ["fused", "unfused"])
def test_what_is_not_finite_is_refused_or_spoils_everything(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host with its place; where nobody looks, no result is a number."""
    what = sg.attention(mask(40, 40), heads=2, d=32)
    kernel = sg.compile(what, device="h200", backend="emulator", schedule=words)
    for name, bad in itertools.product("qkv", (np.nan, np.inf, -np.inf)):
        given = inputs(what)
        given[name][1, 3, 5] = bad
        with pytest.raises(ArrayError, match=rf"{name}\[1, 3, 5\] is {bad}, which no integer stands for"):
            kernel(**given)
        with monkeypatch.context() as m:
            m.setattr(AttentionCalls, "views", Calls.views)
            assert np.isnan(kernel(**given)).all()


@pytest.mark.parametrize("words", ["fused", "unfused"])
def test_scales_that_are_no_numbers_spoil_everything(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of integers too, where nobody looks: whatever scale it is."""
    what = described(40, 40)
    kernel, given = sg.compile(what, device="h200", backend="emulator", schedule=words), inputs(what)
    monkeypatch.setattr(AttentionCalls, "views", Calls.views)
    seen = what.pattern.to_host().to_dense().any(1)
    for name in ("q_scale", "k_scale", "v_scale"):
        assert np.isnan(kernel(**{**given, name: np.full(1, np.nan, np.float32)})[:, seen]).all()


@pytest.mark.parametrize("words", LINES)
def test_batches_have_an_axis_of_their_own(words: str) -> None:
    kernel = called(described(40, 200, batch=3), words)
    assert kernel(**kernel.random()).shape == (3, 2, 40, 64)


@pytest.mark.parametrize("words", [line(1), line(2), "unfused"])
def test_large_scores_do_not_overflow(words: str) -> None:
    """One key has all of a row; integers of the whole range, -128 too."""
    for d, softmax_bits in ((64, 8), (128, 16)):
        called(described(64, 128, d=d, softmax_bits=softmax_bits), words, extreme=True)


@pytest.mark.parametrize("share", [0.0, 0.02, 1.0])
def test_patterns_of_nothing_and_of_everything(share: float) -> None:
    if share:
        for words in (line(steps=4), "unfused"):
            called(described(64, 200, share=share), words)
        return
    kernel = sg.compile(sg.attention(np.zeros((16, 50), bool), heads=1, d=32, quantized=True), device="h200")
    assert not kernel(**kernel.random()).any()


def test_keys_of_one_bank_take_longer_but_are_right() -> None:
    """Each eighth key: eight rows that are read at once lie in the same banks."""
    kept = np.zeros((24, 256), bool)
    kept[:, ::8] = True
    kernel = called(sg.attention(kept, heads=1, d=64, quantized=True), line(1, 1))
    assert kernel.check().ok and kernel.counts()["conflicts.shared"] > 0


def test_patterns_of_any_kind_are_the_same() -> None:
    kept = mask(40, 60)
    kinds = (kept, scipy.sparse.csr_array(kept), sg.sparse(kept.astype(np.int8), format="sr_bcrs"))
    made = [sg.compile(sg.attention(p, heads=1, d=32, quantized=True), device="h200") for p in kinds]
    arrays = made[0].random()
    results = [k(**arrays) for k in made]
    assert all((r == results[0]).all() for r in results) and results[0].any()


@given(
    st.integers(1, 80), st.integers(1, 220), st.sampled_from((2, 4, 8)), st.sampled_from((32, 64, 128)),
    st.floats(0, 1), st.sampled_from((1, 2, 3)), st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 3)),
    st.sampled_from(("h200", "a100")), st.sampled_from((8, 16)),
)  # fmt: skip
def test_any_attention_runs_without_a_fault(
    m: int, n: int, height: int, d: int, share: float, parts: int, steps: int, warps: int, device: str, bits: int
) -> None:
    """Right, with nothing that a checker finds: no race, and no conflict beyond those that are declared."""
    what = sg.attention(mask(m, n, height, share), heads=1, d=d, quantized=True, softmax_bits=bits)
    try:
        kernel = called(what, line(parts, 1, warps, steps), device)
    except ScheduleError as e:
        assert "without keys" in str(e)
        return
    report = kernel.check(**inputs(what))
    assert report.ok and not report.notes, report


@given(
    st.integers(1, 80), st.integers(1, 220), st.sampled_from((2, 4, 8)), st.sampled_from((32, 64, 128)),
    st.floats(0.01, 1), st.sampled_from((1, 2, 8)), st.sampled_from((2, 3)), st.sampled_from((32, 64, 128)),
    st.sampled_from(("h200", "a100")), st.sampled_from((8, 16)),
)  # fmt: skip
def test_any_unfused_attention_runs_without_a_fault(
    m: int, n: int, height: int, d: int, share: float, most: int, stages: int, wide: int, device: str, bits: int
) -> None:
    """Also of no head's last rows, and of patterns with rows of no key."""
    what = sg.attention(mask(m, n, height, share), heads=3, d=d, quantized=True, softmax_bits=bits)
    try:
        kernel = called(what, f"unfused most={most} stages={stages} wide={wide}", device)
    except ScheduleError as e:
        assert "keeps no element" in str(e)
        return
    report = kernel.check(**inputs(what))
    assert report.ok and not report.notes, report


@pytest.mark.parametrize(("height", "softmax_bits"), list(itertools.product((8, 4, 2), (8, 16))))
def test_unfused_results_are_those_of_the_rounded_exponentials(height: int, softmax_bits: int) -> None:
    """Bit for bit, but for what exp2 leaves between two roundings: of few elements, and one unit of the last place."""
    what = described(45, 300, height, softmax_bits=softmax_bits)
    given = inputs(what)
    got = sg.compile(what, device="h200", backend="emulator", schedule="unfused")(**given)
    q, k, v = (given[name].astype(np.int64) for name in "qkv")
    scales = [given[f"{name}_scale"][0] for name in "qkv"]
    seen, most = what.pattern.to_host().to_dense() != 0, 2**softmax_bits - 1
    scores = np.where(seen, q @ np.swapaxes(k, -1, -2), np.iinfo(np.int64).min // 2)
    scale = float(scales[0] * scales[1] * np.float32(np.log2(np.e) / np.sqrt(what.d)))
    powers = np.where(seen, np.rint(np.exp2((scores - scores.max(-1, keepdims=True)) * scale + np.log2(most))), 0)
    share = np.float32(1) / np.maximum(powers.sum(-1), 1).astype(np.float32) * scales[2]
    want = ((powers @ v).astype(np.float32) * share[..., None]).astype(np.float16)
    assert (got == want).mean() > 0.99 and off(got, want.astype(float)) < 1e-3 / (softmax_bits // 8) ** 2


# ------------------------------------------------------------------------------------------------ its tables
def slots(words: Any, d: int) -> tuple[Any, Any]:
    """The key of each of a step's slots, and whether it is one of the task; AssertionError where lanes disagree."""
    lane, key = np.arange(32), np.zeros(32, int)
    for half, at in enumerate((words & FIRST, words >> SECOND & FIRST)):
        key[lane % 8 + lane // 16 * 8 + 16 * half] = at // d
    place = swizzled(max(int(key.max()) + 1, 8), d, d, 1)
    for half, at in enumerate((words & FIRST, words >> SECOND & FIRST)):
        for n in lane:
            assert at[n] == place(int(key[n % 8 + n // 16 * 8 + 16 * half]), int(n // 8 % 2 * 16)).lo
    kept = np.zeros(32, bool)
    kept[[own_slot(n) for n in lane.tolist()]] = words & 1
    return key, kept


@pytest.mark.parametrize("cut", [Cut(1, 1, 2, 1, 64), Cut(2, 3, 2, 2, 32), Cut(3, 2, 4, 4, 128)], ids=str)
def test_tasks_name_each_key_of_a_row_once(cut: Cut) -> None:
    """The mask comes out of the records, the places of their blocks and the bits that say which count."""
    kept = mask(70, 230, share=0.4)
    w = vectors_of(kept, None)
    tasks = records(w, cut).reshape(cut.parts * cut.groups, -1, cut.warps, 4)
    words = places(w, cut).reshape(-1, 32, cut.steps)
    size, found = part_keys(230, cut.parts), np.zeros((9, 230), int)
    for index in np.ndindex(tasks.shape[:3]):
        row, begin, end, _ = tasks[index]
        for block, u in np.ndindex(end - begin, cut.steps):
            keys, kept_slots = slots(words[begin + block, :, u], cut.d)
            assert (keys < size).all()
            np.add.at(found, (row, index[0] // cut.groups * size + keys[kept_slots]), 1)
    assert (found == kept[::8]).all() and (counted(w, cut.parts).sum(0) == kept[::8].sum(1)).all()


def test_keys_that_are_read_at_once_lie_in_different_banks() -> None:
    """As far as a row has such: 1.2 passes of shared memory for each eight of a tenth of the keys, at random 2.5."""
    rng = np.random.default_rng(0)
    w = vectors_of((rng.random((64, 1024)) < 0.1).repeat(8, 0), None)
    words = places(w, Cut(1, 1, 8, 2, 64)).reshape(-1, 32, 2)
    eights = [slots(step, 64)[0].reshape(4, 8) for block in words for step in block.T]
    passes = [np.bincount(np.unique(eight) % 8).max() for four in eights for eight in four]
    assert np.mean(passes) < 1.25


@pytest.mark.parametrize(("words", "model"), [(line(), attention_cost), ("unfused", unfused_cost)])
@pytest.mark.parametrize("quantized", [True, False])
def test_the_formula_is_the_time(words: str, model: Any, quantized: bool) -> None:
    cost = sg.compile(described(64, 200, quantized=quantized), device="h200", schedule=words).cost
    assert float(cost.formula.xreplace(cost.substitution())) == pytest.approx(cost.time, rel=1e-12)
    assert set(cost.terms) == set(model.REASONS) and {str(s) for s in cost.formula.free_symbols} <= set(model.SYMBOLS)


def test_few_keys_of_many_are_not_fused() -> None:
    """By the model: a block of the fused kernel reads all keys, whatever is seen of them; an explanation has both."""
    for share, family in ((0.002, "unfused"), (0.3, "fused")):
        kept = (np.random.default_rng(0).random((256, 4096)) < share).repeat(8, 0)
        kernel = sg.compile(sg.attention(kept, heads=16, d=64, quantized=True), device="h200")
        assert kernel.schedule.family == family
        page = str(kernel.explain())
        assert "fused parts=" in page and "unfused most=" in page and "softmax" in page
    kernel = sg.compile(described(64, 200), device="h200", schedule="unfused")
    assert [run.symbol for run in program(kernel.problem.what, str(kernel.schedule)).warp.launches] == [
        f"attention_{n}" for n in ("scores", "softmax", "values")
    ]
    assert kernel.counts()["mma.u8.s8.m8n8k16"] > 0 and kernel.workspace_nbytes > 0


def test_explanations_counts_and_sources() -> None:
    kernel = called(described(64, 200), line())
    page = str(kernel.explain())
    assert "fused parts=2" in page and "whole vectors" not in page and "join" in page
    assert kernel.counts()["mma.s8.m16n8k32"] == 2 * kernel.counts()["mma.s8.u8.m16n8k32"]
    assert "attention_join" in kernel.source() and kernel.workspace_nbytes > 0
    assert "2x64x200x64" in repr(kernel)
    best = sg.schedules(described(64, 200), device="h200")
    assert len({str(c.schedule) for c in best}) == len(best) and best == sorted(best, key=lambda c: c.time)


def test_the_reference_is_exact_softmax_of_the_integers() -> None:
    what = described(40, 90)
    given = inputs(what)
    exact = sg.compile(what, device="h200", backend="reference")(**given)
    assert off(called(what)(**given), exact.astype(float)) < 0.01


# ------------------------------------------------------------------------------------------------ refused
@pytest.mark.parametrize(("how", "words"), [
    ({"heads": 0}, "heads=0"), ({"d": 48}, "d=48: there is none but 32, 64, 128"), ({"bits": 5}, "bits=5"),
    ({"softmax_bits": 4}, "softmax_bits=4"), ({"batch": -1}, "batch=-1"), ({"quantized": 1}, "quantized is 1"),
])  # fmt: skip
def test_words_that_there_are_not(how: dict[str, Any], words: str) -> None:
    with pytest.raises(ProductError, match=words):
        described(16, 16, **how)


def test_patterns_that_are_none() -> None:
    odd = np.zeros((16, 16), bool)
    odd[3, 4] = True
    with pytest.raises(ProductError, match="not made of whole vectors") as e:
        sg.attention(odd, heads=1, d=32, quantized=True)
    assert "sg.pattern.vectors" in (e.value.hint or "")
    with pytest.raises(ArrayError, match="not bool"):
        sg.attention(odd.astype(int), heads=1, d=32, quantized=True)


@pytest.mark.parametrize(("changed", "words"), [
    ({"q": np.zeros((2, 40, 64), np.float16)}, "q has dtype float16, it must be int8"),
    ({"k": np.zeros((2, 40, 64), np.int8)}, r"k has shape \(2, 40, 64\)"),
    ({"v": np.zeros((64, 90, 2), np.int8).T}, r"v has strides"),
    ({"q_scale": None}, "q_scale is missing"), ({"k_scale": 0.0}, "k_scale is 0.0"),
    ({"k_scale": np.array([np.nan], np.float32)}, "k_scale is nan"), ({"v_scale": float("inf")}, "v_scale is inf"),
    ({"v_scale": np.ones(3, np.float32)}, "v_scale has shape"), ({"v_scale": np.ones(1)}, "v_scale has dtype float64"),
    ({"mask": 1}, "mask is no parameter"),
])  # fmt: skip
def test_arrays_that_do_not_fit(changed: dict[str, Any], words: str) -> None:
    what = described(40, 90)
    kernel = sg.compile(what, device="h200", backend="emulator")
    with pytest.raises(ArrayError, match=words) as e:
        kernel(**{**inputs(what), **changed})
    assert e.value.hint


def test_scales_are_numbers_or_arrays_of_one() -> None:
    what = described(40, 90)
    given, kernel = inputs(what), sg.compile(what, device="h200", backend="emulator")
    first = kernel(**given)
    for made in (float, np.float32, lambda x: x.reshape(())):
        again = kernel(**{name: made(a[0] if made is not np.float32 or name else a) if a.size == 1 else a
                          for name, a in given.items()})  # fmt: skip
        assert (again == first).all()


@pytest.mark.parametrize(("words", "reason"), [
    ("fused parts=1 groups=9 warps=2 keys=32", "leave blocks without any"),
    ("fused parts=6 groups=1 warps=2 keys=32", "leave one without keys"),
    ("fused parts=1 groups=1 warps=32 keys=128", "do not fit an SM"),
    ("unfused stages=9", "stages"),
])  # fmt: skip
def test_schedules_that_cannot_run(words: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason) as e:
        sg.compile(described(64, 130), device="h200", backend="emulator", schedule=words)
    assert e.value.hint


def test_parts_that_do_not_fit_and_gpus_that_have_no_such_mma() -> None:
    with pytest.raises(ScheduleError, match="do not fit the shared memory") as e:
        sg.compile(described(64, 4096), device="h200", schedule="fused parts=1 groups=1 warps=2 keys=32")
    assert e.value.hint == "raise parts"
    for words in ("auto", "fused", "unfused"):
        with pytest.raises(ScheduleError, match="has not"):
            sg.compile(described(64, 64), device="v100", backend="emulator", schedule=words)


def test_scores_of_nothing_and_too_many_are_not_stored() -> None:
    nothing = sg.attention(np.zeros((16, 50), bool), heads=1, d=32, quantized=True)
    with pytest.raises(ScheduleError, match="keeps no element") as e:
        sg.compile(nothing, device="h200", backend="emulator", schedule="unfused")
    assert e.value.hint == "take fused"
    many = sg.attention(np.ones((4096, 4096), bool), heads=128, d=64, quantized=True)
    with pytest.raises(ScheduleError, match="scores are stored; indices are 32 bits wide"):
        sg.compile(many, device="h200", backend="emulator", schedule="unfused")


def test_what_only_a_stencil_has_means_nothing() -> None:
    with pytest.raises(ProductError, match="steps=3 means nothing"):
        sg.compile(described(16, 16), steps=3, device="h200")
    assert dataclasses.is_dataclass(described(16, 16))
