"""Products on a GPU without one: arrays in and out, uploads, workspaces, the short way, on a runtime that emulates."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.calls.product import order, orders, variant
from sparsegen.ir.errors import DeviceMemoryError
from sparsegen.problems.product import Variant
from sparsegen.products.dense import DenseProduct
from sparsegen.run import workspace
from sparsegen.run.fast import Call, fast_call, library_call
from sparsegen.run.host import flat
from sparsegen.views import ArrayLayout, ArrayView
from tests import nm_kit
from tests.products_kit import agrees, matrix, operands


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "api"))
    import fake_gpu

    return fake_gpu.install(monkeypatch)


def run(k: Any, given: dict[str, Any], **more: Any) -> Any:
    return k(given["x"], **{n: a for n, a in given.items() if n not in ("x", "out")}, **more)


@pytest.mark.parametrize("line", ["bitmap", "bitmap splits=3 warps=2x2"])
@pytest.mark.parametrize("orders_", [("row", "row"), ("column", "column"), ("column", "row")])
def test_host_arrays(gpu: Any, line: str, orders_: tuple[str, str]) -> None:
    product = sg.spmm(matrix(70, 200), n=12, bias=True, residual=True, activation="gelu")
    k = sg.compile(product, backend="cuda", schedule=line)
    given = operands(product, *orders_)
    before = {n: a.copy() for n, a in given.items() if n != "out"}
    for _ in range(2):
        given["out"][...] = np.nan
        assert run(k, given, out=given["out"]) is given["out"]
        agrees(given["out"], product, given)
    assert all(np.array_equal(given[n], a) for n, a in before.items())


def test_a_matrix_is_uploaded_once_and_given_back(gpu: Any) -> None:
    w = matrix(70, 200)
    a, b = sg.spmm(w, n=4), sg.spmm(w, n=9)
    first = sg.compile(a, backend="cuda")
    first(operands(a)["x"])
    held = len(gpu.held)
    assert held >= 3
    second = sg.compile(b, backend="cuda")
    agrees(second(operands(b)["x"]), b, operands(b))
    assert len(gpu.held) == held
    del first, second, a, b, w
    gc.collect()
    assert len(gpu.held) == held - 3


def test_too_little_memory_says_for_what(gpu: Any) -> None:
    product = sg.spmm(matrix(700, 800), n=4)
    k = sg.compile(product, backend="cuda")
    x = operands(product)["x"]
    gpu.size = product.w.nbytes // 2
    with pytest.raises(DeviceMemoryError, match=r"bytes \(W \d+\)"):
        k(x)
    gpu.size = product.w.nbytes + 1000
    with pytest.raises(DeviceMemoryError, match=r"bytes \(in 6400, out 5600"):
        k(x)
    gpu.size = 1 << 30
    agrees(k(x), product, operands(product))


def device_array(gpu: Any, a: Any, offset: int = 0) -> Any:
    """A copy of a host array in the GPU's memory, as an array of some library, ``offset`` bytes from where it could
    start."""
    data = flat(a)
    pointer = gpu.alloc(data.nbytes + offset) + offset
    gpu.held.setdefault(pointer, gpu.held[pointer - offset])
    gpu.to_device(pointer, np.ascontiguousarray(data))
    layout = ArrayLayout("cai", a.shape, a.strides, a.dtype, "cuda", 0)
    return ArrayView(pointer, layout, SimpleNamespace(shape=a.shape))


def fetched(gpu: Any, view: ArrayView, like: Any) -> Any:
    out = np.empty_like(like)
    gpu.to_host(flat(out), view.pointer)
    return out


@pytest.mark.parametrize("offset", [0, 2, 4, 8])
@pytest.mark.parametrize("orders_", [("row", "column"), ("column", "row")])
def test_device_arrays_at_any_address(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, orders_: tuple[str, str], offset: int
) -> None:
    product = sg.spmm(matrix(70, 192), n=16)
    given = operands(product, *orders_)
    views = {n: device_array(gpu, a, offset if n == "x" else 0) for n, a in given.items()}
    monkeypatch.setattr("sparsegen.arrays.describe", lambda a: a)
    k = sg.compile(product, backend="cuda")
    monkeypatch.setattr("sparsegen.calls.product.Operand.__call__", lambda self, a: self.check(a.layout) or a)
    assert k(views["x"], views["out"]) is views["out"]
    agrees(fetched(gpu, views["out"], given["out"]), product, given)
    assert variant(views["x"], views["out"]).vec == {0: 8, 2: 1, 4: 2, 8: 4}[offset]


def test_orders_of_arrays() -> None:
    def found(shape: tuple[int, int], strides: tuple[int, int]) -> tuple[str, ...]:
        return orders(ArrayLayout("numpy", shape, strides, np.dtype("f2"), "host", None))

    assert found((3, 4), (8, 2)) == ("row",) and found((3, 4), (2, 6)) == ("column",)
    assert found((3, 4), (16, 2)) == found((3, 4), (2, 8)) == found((3, 4), (8, 4)) == found((3, 4), (0, 2)) == ()
    assert found((3, 1), (2, 2)) == found((3, 1), (2, 6)) == found((1, 4), (8, 2)) == ("row", "column")
    assert found((3, 1), (4, 2)) == () and found((1, 1), (7, 7)) == ("row", "column")
    for shape, strides, which in (((3, 1), (2, 2), "column"), ((1, 4), (2, 2), "row"), ((1, 1), (2, 2), "column")):
        assert order(ArrayLayout("numpy", shape, strides, np.dtype("f2"), "host", None)) == which


def test_each_stream_has_a_workspace_whose_counter_is_zero(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "COUNTERS", 2)  # so that there are soon none left
    product = sg.spmm(matrix(70, 300), n=8)
    k = sg.compile(product, backend="cuda", schedule="bitmap splits=3 warps=1x2 rows=1")
    given = operands(product)
    for stream in (0, 5, 6, 5, 7, 0):
        agrees(k(given["x"], stream=stream), product, given)
    (executor,) = k._executors.values()
    streams = executor.counted(k._plan(1)).streams
    assert set(streams) == {0, 5, 6, 7}
    assert len({address for space in streams.values() for address in space}) == 8


def test_a_captured_call_has_a_workspace_of_its_own(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    product = sg.spmm(matrix(70, 300), n=8)
    k = sg.compile(product, backend="cuda", schedule="bitmap splits=3 warps=1x2 rows=1")
    given = operands(product)
    k(given["x"])
    monkeypatch.setattr(gpu, "capturing", lambda stream: True)
    with pytest.raises(sg.DeviceError, match="only torch allocates for a graph"):
        k(given["x"])
    (executor,) = k._executors.values()
    counted, spaces = executor.counted(k._plan(1)), k._plan(1).workspaces
    made: list[tuple[int, ...]] = []
    zeroed: list[int] = []

    def like_torch(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        made.append(shape)
        return np.zeros(shape, dtype)

    monkeypatch.setattr(workspace, "empty_like", like_torch)
    monkeypatch.setattr(gpu, "zero", lambda at, nbytes, stream: zeroed.append(nbytes))
    like: Any = SimpleNamespace(layout=SimpleNamespace(library="torch"))
    assert list(spaces) == ["workspace.slots", "workspace.counter"]
    counters = {counted.of(3, like)[0][1] for _ in range(workspace.COUNTERS - 1)}
    assert len(counters) == workspace.COUNTERS - 1 and counted.streams[0][1] not in counters and not zeroed
    assert set(made) == {(spaces["workspace.slots"].nbytes,)}
    counted.of(3, like)  # no counter is left: one of torch's, set to zero at each replay
    assert zeroed == [spaces["workspace.counter"].nbytes] and made[-1] == (zeroed[0],)
    monkeypatch.setattr(gpu, "recorder", 9)
    recorded = counted.of(9, None)  # what the runtime records is in order: it has the workspace of its stream
    assert recorded == counted.of(9, None) and recorded[0] == counted.streams[9] != counted.streams[0]


def test_a_pass_of_several_launches_is_one(gpu: Any) -> None:
    """As the short way has it: x by columns is written by rows first, into memory that each call brings."""
    product = sg.spmm(nm_kit.matrix(36, 96, 8, 32, (64, 1)), n=3)
    k = sg.compile(product, backend="cuda", schedule="nm_gather rows=64 cols=16 stages=2")
    given = operands(product, "column", "column")
    plan = k._plan(1, Variant("column", "column", 1))
    executor = k._executor(0, None)
    assert executor.kept(plan) is None
    launch, names = executor.single(plan)
    space = {name: gpu.alloc(workspace.nbytes) for name, workspace in plan.workspaces.items()}
    views = {"in": device_array(gpu, given["x"]), "out": device_array(gpu, given["out"])}
    where = {**{name: v.pointer for name, v in views.items()}, **executor.fixed, **space}
    before = gpu.launched
    launch([name if isinstance(name, int) else where[name] for name in names], 0)
    assert gpu.launched == before + 2 and len(set(names)) == len(names)
    agrees(fetched(gpu, views["out"], given["out"]), product, given)


def test_what_is_on_another_device_is_refused(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    product = sg.spmm(matrix(70, 192), n=16, bias=True)
    given = operands(product)
    k = sg.compile(product, backend="cuda")
    monkeypatch.setattr("sparsegen.products.weights.device_of", lambda w: 1)
    with pytest.raises(sg.ArrayError, match="W is on cuda:1, the product is to run on cuda:0"):
        run(k, given)


# ------------------------------------------------------------------------------------------------ the short way
class Tensor:
    """As much of a torch tensor as ``fast_call`` asks for; on device 0."""

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: str = "f2", turned: bool = False) -> None:
        self.pointer, self.shape, self.dtype, self.requires_grad = pointer, shape, dtype, False
        self.device = 0
        self.strides: tuple[int, ...] = (1, shape[0]) if turned else (shape[1], 1) if len(shape) > 1 else (1,)

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def get_device(self) -> int:
        return self.device

    def data_ptr(self) -> int:
        return self.pointer

    def t(self) -> Tensor:
        return Tensor(self.pointer, self.shape[::-1], self.dtype, turned=True)


def view(tensor: Tensor) -> ArrayView:
    strides = tuple(2 * s for s in tensor.strides)
    return ArrayView(tensor.pointer, ArrayLayout("torch", tensor.shape, strides, np.dtype("f2"), "cuda", 0), tensor)


@pytest.mark.parametrize("turned", [False, True])
def test_the_short_way_says_no_to_whatever_changed(monkeypatch: pytest.MonkeyPatch, turned: bool) -> None:
    stream, busy = [5], [False]
    core = SimpleNamespace(
        _cuda_getCurrentRawStream=lambda device: stream[0], _cuda_isCurrentStreamCapturing=lambda: busy[0]
    )

    def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, device: Any) -> Tensor:
        made = Tensor(1 << 26, shape)
        made.strides = strides
        return made

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, _C=core, empty_strided=empty, uint8="u1"))
    x, out, bias = (
        Tensor(1 << 20, (24, 8), turned=turned),
        Tensor(1 << 22, (40, 8), turned=turned),
        Tensor(1 << 24, (40,)),
    )
    ran: list[Any] = []
    spaces: dict[int, tuple[int, ...]] = {5: (91, 92)}
    known = Call(
        (x,), {"scale": None, "bias": bias}, {"in": view(x), "bias": view(bias)}, ("out", view(out)),
        {"in": 16, "out": 4, "bias": 2}, lambda pointers, s=None: ran.append((pointers, s)),
        ("in", "out", "index", "masks", 77, "values", "bias", "workspace.slots", "workspace.counter"),
        {"index": 1, "masks": 2, "values": 3}, {"workspace.slots": 256, "workspace.counter": 4}, spaces, turned, True,
    )  # fmt: skip
    call = fast_call(known)
    assert call is not None
    done: list[Any] = []
    library = library_call(known.args, known.named, known.inputs, known.output, turned, lambda *a: done.append(a))
    torchs = fast_call(library)
    assert torchs is not None and torchs((x,), out, {"bias": bias, "scale": None}) is out
    assert torchs(((x, out)[1],), out, {"bias": bias, "scale": None}) is None
    assert torchs((x,), Tensor(1 << 20, (40, 8), turned=turned), {"bias": bias, "scale": None}) is None  # over x
    made = torchs((x,), None, {"bias": bias, "scale": None})
    assert done == [({"in": x, "bias": bias}, out), ({"in": x, "bias": bias}, made)] and made.pointer == 1 << 26
    assert made.stride() == out.stride()

    def attempt(x: Any = x, out: Any = out, bias: Any = bias, scale: Any = None) -> Any:
        return call((x,), out, {"bias": bias, "scale": scale})

    assert attempt() is out and ran == [((1 << 20, 1 << 22, 1, 2, 77, 3, 1 << 24, 91, 92), 5)]
    other = Tensor(1 << 16, (24, 8), turned=turned)
    assert attempt(other) is out and ran.pop()[0][0] == 1 << 16
    made = attempt(out=None)
    assert made.shape == (40, 8) and made.stride() == out.stride() and ran.pop()[0][1] == 1 << 26

    class Other(Tensor):
        """A subclass of the tensors' type."""

    xs = [Tensor(1 << 20, (8, 24)), Other(1 << 20, (24, 8), turned=turned),
          Tensor((1 << 20) + 8, (24, 8), turned=turned), Tensor(1 << 20, (24, 8), "f4", turned),
          Tensor(1 << 20, (24, 8), turned=not turned), np.zeros(3),
          Tensor((1 << 22) + 624, (24, 8), turned=turned)]  # fmt: skip
    outs = [Tensor((1 << 22) + 2, (40, 8), turned=turned), Tensor(1 << 20, (40, 8), turned=turned), x,
            Tensor(1 << 22, (40, 8), turned=not turned), Tensor((1 << 24) + 76, (40, 8), turned=turned)]  # fmt: skip
    for name, value in (("device", -1), ("requires_grad", True)):
        for group, like in ((xs, x), (outs, out)):
            changed = Tensor(like.pointer, like.shape, turned=turned)
            setattr(changed, name, value)
            group.append(changed)
    before = len(ran)
    assert all(attempt(x=bad) is None for bad in xs) and all(attempt(out=bad) is None for bad in outs)
    assert attempt(bias=None) is None and attempt(bias=Tensor(1 << 24, (41,))) is None and attempt(scale=bias) is None
    busy[0] = True
    assert attempt() is None
    busy[0], stream[0] = False, 6
    assert attempt() is None and len(ran) == before  # a stream that has no workspace yet
    assert fast_call(replace(known, output=("out", ArrayView(0, view(out).layout, Other(0, (40, 8)))))) is None
    busy[0], stream[0] = False, 5
    other_way = fast_call(replace(known, turned=not turned))
    assert other_way is not None and other_way((x,), None, {"bias": bias, "scale": None}) is None  # x's order decides


@pytest.mark.parametrize("epilogue", [{}, {"bias": True, "scale": True, "residual": True, "activation": "gelu"},
                                      {"activation": "silu"}], ids=["plain", "all", "silu"])  # fmt: skip
def test_the_dense_product_of_a_short_call(monkeypatch: pytest.MonkeyPatch, epilogue: dict[str, Any]) -> None:
    """What ``format="auto"`` takes where it is faster must not cost what it gains: a call is torch's own functions."""
    torch = pytest.importorskip("torch")
    product = sg.spmm(matrix(40, 72), n=24, **epilogue)
    monkeypatch.setattr("sparsegen.products.dense._dense", lambda p, *_: torch.from_numpy(p.w.to_dense()).float())
    given = operands(product)
    out = torch.empty(40, 24)
    tensors = {"in" if n == "x" else n: torch.from_numpy(a).float() for n, a in given.items() if n != "out"}
    DenseProduct(product).on_torch(0)(tensors, out)
    agrees(out.half().numpy(), product, given)


def test_a_dense_kernel_learns_the_short_way(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    product = sg.spmm(matrix(40, 24), n=8)
    core = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 0, _cuda_isCurrentStreamCapturing=lambda: False)
    ran: list[Any] = []
    functions = SimpleNamespace(gelu=None, silu=None)
    torch = SimpleNamespace(
        Tensor=Tensor, _C=core, empty_strided=None, relu_=None, nn=SimpleNamespace(functional=functions),
        mm=lambda w, x, out: ran.append((w, x, out)),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr("sparsegen.products.dense._dense", lambda *_: "W")
    k = sg.compile(product, backend="cuda", schedule="dense")
    x, out = Tensor(1 << 20, (24, 8)), Tensor(1 << 22, (40, 8))
    k._learn((x,), {}, {"in": view(x)}, {"out": view(out)})
    other = Tensor(1 << 24, (24, 8))
    assert k(other, out=out) is out and ran == [("W", other, out)]
