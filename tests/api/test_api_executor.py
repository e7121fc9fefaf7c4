"""The CUDA executor without a GPU: its time loop, workspaces, graphs and pitches, on a runtime that emulates."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.run.fast import Call, fast_call
from sparsegen.views import ArrayLayout, ArrayView

rng = np.random.default_rng(3)
BOX = rng.random((3, 3)) / 5 - 0.02
LINES = ["direct", "tiled fuse=2 stages=2", "stencil2row fuse=3 stages=2", "stencil2row transform=explicit"]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import fake_gpu

    return fake_gpu.install(monkeypatch)


def off(a: Any, b: Any) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.parametrize("shape", [(24, 40), (23, 37)])
@pytest.mark.parametrize("line", LINES)
def test_time_loops(gpu: Any, line: str, shape: tuple[int, int]) -> None:
    """Few passes, and so many that a graph repeats the middle ones; with and without a rest."""
    many = 10 * sg.Schedule.parse(line).steps
    for sides in (sg.periodic, sg.frozen):
        st = sg.Stencil.from_weights(BOX, boundary=sides)
        k = sg.compile(st, shape, steps=9, backend="cuda", schedule=line)
        for steps in (1, 2, 3, 4, 7, 9, many - 1, many):
            u = rng.random(shape)
            want = sg.compile(st, shape, steps=steps, backend="reference", schedule="direct")(u)
            assert off(k(u, steps=steps), want) <= 1e-12
        del k
    assert not any(m is None for m in gpu.held)


def test_graphs_repeat_the_middle_passes(gpu: Any) -> None:
    st = sg.Stencil.from_weights(BOX)
    for cols in (40, 37):
        k = sg.compile(st, (24, cols), steps=140, backend="cuda", schedule="direct")
        k(rng.random((24, cols)))
        assert gpu.launched == 140 and gpu.replayed == 138, (gpu.launched, gpu.replayed)  # 64 twice, and 10
        gpu.launched = gpu.replayed = 0


def test_a_captured_loop_is_no_graph_in_a_graph(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later calls would write their pointers into the one that the captured launch has."""
    st, u = sg.Stencil.from_weights(BOX), rng.random((24, 40))
    k = sg.compile(st, u.shape, steps=140, backend="cuda", schedule="direct")
    monkeypatch.setattr(gpu, "capturing", lambda stream: True)
    want = sg.compile(st, u.shape, steps=140, backend="reference", schedule="direct")(u)
    assert off(k(u), want) <= 1e-12 and gpu.launched == 140 and gpu.replayed == 0


def device_array(gpu: Any, wide: Any, first: int, cols: int) -> ArrayView:
    """A block of columns of a host array, copied to the device, as an array of some library."""
    pointer = gpu.alloc(wide.nbytes)
    gpu.to_device(pointer, wide)
    layout = ArrayLayout("cai", (wide.shape[0], cols), wide.strides, wide.dtype, "cuda", 0)
    return ArrayView(pointer + first * 8, layout, SimpleNamespace())


@pytest.mark.parametrize("steps", [1, 2, 3, 12])
@pytest.mark.parametrize("line", ["direct", "tiled stages=2", "stencil2row stages=2"])
def test_device_arrays_with_a_pitch(gpu: Any, line: str, steps: int) -> None:
    """In and out in place, whatever their pitches; beside the view of out nothing is written."""
    st = sg.Stencil.from_weights(BOX, boundary=sg.neumann)
    k = sg.compile(st, (23, 37), steps=steps, backend="cuda", schedule=line)
    for width, first in ((48, 0), (64, 16), (41, 3)):
        wide, around = np.full((23, width), np.nan), np.full((23, 100), 7.0)
        wide[:, first : first + 37] = rng.random((23, 37))
        u, out = device_array(gpu, wide, first, 37), device_array(gpu, around, 32, 37)
        k._on_gpu({"in": u, "out": out}, steps, None)
        gpu.to_host(around, out.pointer - 32 * 8)
        want = sg.compile(st, (23, 37), steps=steps, backend="reference", schedule="direct")(
            wide[:, first : first + 37].copy()
        )
        assert off(around[:, 32:69], want) <= 1e-12
        assert np.all(around[:, :32] == 7.0) and np.all(around[:, 69:] == 7.0)


def test_addresses_that_do_not_suit_the_pitch(gpu: Any) -> None:
    k = sg.compile(sg.Stencil.from_weights(BOX), (64, 64), backend="cuda", schedule="stencil2row stages=2")
    for first_u, first_out, name in ((1, 0, "u"), (0, 1, "out")):
        u = device_array(gpu, np.zeros((64, 80)), first_u, 64)
        out = device_array(gpu, np.full((64, 80), 7.0), first_out, 64)
        with pytest.raises(sg.ArrayError, match=f"{name} starts at .* moves 16 bytes"):
            k._on_gpu({"in": u, "out": out}, 1, None)
        assert gpu.launched == 0


def test_a_view_that_32_bit_indices_do_not_reach(gpu: Any) -> None:
    k = sg.compile(sg.Stencil.from_weights(BOX), (24, 40), backend="cuda", schedule="direct")
    rows = ArrayLayout("cai", (24, 40), (1 << 30, 8), np.dtype("f8"), "cuda", 0)
    with pytest.raises(sg.ArrayError, match="indices are 32 bits wide"):
        k._calls.inputs["in"].check(rows)


# ------------------------------------------------------------------------------------------------ the short way
class Tensor:
    """As much of a torch tensor as ``fast_call`` asks for; on device 0."""

    def __init__(self, pointer: int, shape: tuple[int, int] = (24, 40), dtype: str = "f8") -> None:
        self.pointer, self.shape, self.dtype, self.strides = pointer, shape, dtype, (shape[1], 1)
        self.device, self.requires_grad = 0, False

    def stride(self) -> tuple[int, int]:
        return self.strides

    def get_device(self) -> int:
        return self.device

    def data_ptr(self) -> int:
        return self.pointer


def test_the_short_way_says_no_to_whatever_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = [0]
    core = SimpleNamespace(
        _cuda_getCurrentRawStream=lambda device: stream[0], _cuda_isCurrentStreamCapturing=lambda: False
    )

    def empty(shape: Any, strides: Any, dtype: Any, device: Any) -> Tensor:
        assert (shape, strides) == ((24, 40), (40, 1)) or (shape, strides, dtype) == ((512,), (1,), "u1")
        return Tensor(1 << 26 if dtype == "f8" else 1 << 28, (*shape, 1)[:2], dtype)

    torch = SimpleNamespace(Tensor=Tensor, _C=core, empty_strided=empty, uint8="u1")
    monkeypatch.setitem(sys.modules, "torch", torch)
    layout = ArrayLayout("torch", (24, 40), (320, 8), np.dtype("f8"), "cuda", 0)
    nbytes = 24 * 40 * 8
    u, out = Tensor(1 << 20), Tensor(1 << 24)
    ran: list[Any] = []
    known = Call(
        (u,), {}, {"in": ArrayView(u.pointer, layout, u)}, ("out", ArrayView(out.pointer, layout, out)),
        {"in": 16, "out": 8}, lambda pointers, s=None: ran.append((pointers, s)), ("in", "out"), {}, {}, None,
        turned=False, any_stream=False,
    )  # fmt: skip
    fast = fast_call(known)
    assert fast is not None
    assert fast((u,), out, {}) is out and ran == [((1 << 20, 1 << 24), 0)]
    assert fast((Tensor(1 << 16),), other := Tensor((1 << 16) + nbytes), {}) is other and len(ran) == 2
    made = fast((u,), None, {})
    assert made.pointer == 1 << 26 and made.shape == (24, 40) and ran[-1] == ((1 << 20, 1 << 26), 0)

    class Other(Tensor):
        """A subclass of the tensors' type."""

    refused = [
        (np.zeros(3), out),
        (Other(1 << 20), out),
        (Tensor(1 << 20, dtype="f4"), out),
        (Tensor(1 << 20, (40, 24)), out),
        (u, u),
        (u, Tensor(u.pointer + nbytes - 8)),
        (Tensor(out.pointer + nbytes - 16), out),
        (Tensor((1 << 20) + 8), out),  # not a multiple of 16
        (u, Tensor((1 << 24) + 4)),
    ]
    for name, value in (("device", -1), ("strides", (48, 1)), ("requires_grad", True)):
        changed = Tensor(1 << 20)
        setattr(changed, name, value)
        refused += [(changed, out), (u, changed)]
    for a, b in refused:
        assert fast((a,), b, {}) is None
    assert fast((u, out), None, {}) is None and fast((), out, {"u": u}) is None and fast((u,), out, {"v": u}) is None
    stream[0] = 5
    assert fast((u,), out, {}) is None and len(ran) == 3
    everywhere = fast_call(replace(known, any_stream=True))
    assert everywhere is not None and everywhere((u,), out, {}) is out and ran[-1] == ((1 << 20, 1 << 24), 5)
    spacious = replace(known, order=("in", "ws", "out"), spaces={"ws": 512}, any_stream=True)
    anew, kept = fast_call(spacious), fast_call(replace(spacious, streams={5: (1 << 30,)}))
    assert anew is not None and anew((u,), out, {}) is out and ran[-1] == ((1 << 20, 1 << 28, 1 << 24), 5)
    assert kept is not None and kept((u,), out, {}) is out and ran[-1] == ((1 << 20, 1 << 30, 1 << 24), 5)
    stream[0] = 6
    assert kept((u,), out, {}) is None, "a stream that has none yet"
    stream[0] = 5
    by_position = fast_call(replace(known, args=(u, out), any_stream=True))
    assert by_position is not None and by_position((u, out), None, {}) is out
    assert by_position((u,), out, {}) is None and by_position((u, out), out, {}) is None
    wide = ArrayLayout("torch", (24, 40), (384, 8), np.dtype("f8"), "cuda", 0)
    spread = Tensor(1 << 24)
    spread.strides = (48, 1)
    pitched = fast_call(replace(known, output=("out", ArrayView(spread.pointer, wide, spread)), any_stream=True))
    assert pitched is not None and pitched((u,), spread, {}) is spread
    assert pitched((u,), None, {}) is None  # a new array would be packed: another program
    assert fast_call(replace(known, output=("out", ArrayView(0, layout, Other(0))))) is None
    assert fast_call(replace(known, args=((u,),))) is None  # levels of a field
