"""Arrays in and out: what is taken, what is refused, and what each refusal says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sparsegen import views
from sparsegen.arrays import Expect, check_together, describe, empty_like, host_array, launch_stream, overlap
from sparsegen.ir.errors import ArrayError

U = Expect("u", (6, 10), "f8")
OUT = Expect("out", (6, 10), "f8", writable=True)


def field(shape: tuple[int, ...] = (6, 10), dtype: Any = "f8") -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


def test_a_plain_array() -> None:
    a = field()
    view = U(a)
    layout = view.layout
    assert view.pointer == a.ctypes.data and view.owner is a and host_array(view) is a
    assert (layout.library, layout.device_kind, layout.device_index) == ("numpy", "host", None)
    assert layout.contiguous and layout.pitch == 80 and layout.span == a.nbytes and launch_stream(view) is None


def test_layouts_are_interned() -> None:
    assert describe(field()).layout is describe(field()).layout
    assert describe(field()).layout is not describe(field(dtype="f4")).layout


def test_rows_may_have_a_pitch() -> None:
    layout = U(field((6, 13))[:, 2:12]).layout
    assert layout.pitch == 104 and not layout.contiguous and layout.span == 5 * 104 + 80
    assert U(field((12, 10))[::2]).layout.pitch == 160


def test_axes_of_one_element_do_not_matter() -> None:
    one = np.lib.stride_tricks.as_strided(field((1, 10)), (1, 10), (8, 8))
    view = Expect("u", (1, 10), "f8")(one)
    assert view.layout.contiguous and view.layout.pitch == 80


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (field(dtype="f4"), ["dtype float32", "float64", "convert it"]),
        (field(dtype=ml_dtypes.bfloat16), ["dtype bfloat16"]),
        (field(dtype="c16"), ["complex128"]),
        (field(dtype=">f8"), ["byte order", "astype"]),
        (field((60,)), ["1 axes", "shape (6, 10)"]),
        (field((6, 10, 1)), ["3 axes"]),
        (field((10, 6)), ["shape (10, 6)", "compile with shape=(10, 6)"]),
        (field((10, 6)).T, ["strides (8, 48)", "ascontiguousarray"]),
        (field((6, 20))[:, ::2], ["strides (160, 16)"]),
        (field()[::-1], ["strides (-80, 8)"]),
        (np.broadcast_to(np.zeros(10), (6, 10)), ["strides (0, 8)"]),
        ([[1.0] * 10] * 6, ["builtins.list", "np.asarray"]),
        (None, ["NoneType", "NumPy"]),
        ("u", ["builtins.str"]),
        (np.frombuffer(bytes(6 * 10 * 8 + 1), "u1")[1:].view("f8").reshape(6, 10), ["not aligned", "copy"]),
    ],
)
def test_refused(array: Any, words: list[str]) -> None:
    with pytest.raises(ArrayError) as e:
        U(array)
    text = str(e.value)
    assert "remedy" in text and all(word in text for word in words), text


def test_read_only_is_for_inputs() -> None:
    a = field()
    a.flags.writeable = False
    U(a)
    with pytest.raises(ArrayError, match="out is read-only"):
        OUT(a)


def test_refused_again_each_time() -> None:
    for _ in range(3):
        with pytest.raises(ArrayError, match="dtype"):
            U(field(dtype="f4"))


def test_out_must_not_share_memory() -> None:
    a, big = field(), field((12, 40))
    for out in (a, a[:]):
        with pytest.raises(ArrayError, match=r"out shares memory with u .*\n.*another array"):
            check_together([("u", U(a))], ("out", OUT(out)))
    with pytest.raises(ArrayError, match="shares memory"):
        check_together([("u", U(big[:6, :10]))], ("out", OUT(big[5:11, 9:19])))
    check_together([("u", U(big[:6, :10]))], ("out", OUT(big[6:12, :10])))
    check_together([("u", U(a))], ("out", OUT(field())))


def test_columns_side_by_side_do_not_overlap() -> None:
    big = field((6, 20))
    left, middle, right = (U(big[:, i : i + 10]) for i in (0, 5, 10))
    assert not overlap(left, right) and not overlap(right, left)
    assert overlap(left, middle) and overlap(middle, right)


@pytest.mark.parametrize("seed", range(30))
def test_overlap_is_numpys(seed: int) -> None:
    """Against NumPy's exact answer, on random windows of one array."""
    random = np.random.default_rng(seed)
    big = field((8, 8))

    def window() -> np.ndarray[Any, Any]:
        y, x = random.integers(0, 7, 2)
        return big[y : y + random.integers(1, 4), x : x + random.integers(2, 4)]

    for _ in range(30):
        a, b = window(), window()
        if min(a.shape[0], b.shape[0]) > 1:  # a single row has no pitch: then a range that overlaps is enough
            assert overlap(describe(a), describe(b)) == np.shares_memory(a, b)
        elif np.shares_memory(a, b):
            assert overlap(describe(a), describe(b))


def test_empty_like() -> None:
    view = U(field((6, 13))[:, :10])
    new = empty_like(view)
    assert isinstance(new, np.ndarray) and new.shape == (6, 10) and new.flags.c_contiguous and new.dtype == "f8"
    assert empty_like(view, (3,), "f4").dtype == "f4"


def test_three_axes() -> None:
    expect = Expect("u", (2, 3, 4), "f8")
    assert expect(field((2, 3, 8))[:, :, :4]).layout.pitch == 64
    with pytest.raises(ArrayError, match="strides"):
        expect(np.swapaxes(field((3, 2, 4)), 0, 1))


# ------------------------------------------------------------------------------------------------ device interfaces


class OnDevice:
    """A ``__cuda_array_interface__`` as a library would export it; nothing is ever read from the address."""

    def __init__(self, **changes: Any) -> None:
        facts = {"shape": (6, 10), "typestr": "<f8", "data": (0x7F0000000000, False), "version": 3, "strides": None}
        self.__cuda_array_interface__ = {**facts, **changes}


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses above are made up: the driver, where there is one, is not asked about them."""
    from sparsegen import interop

    monkeypatch.setattr(interop, "_pointer_device", lambda pointer, library: 1 if pointer == 0x7F1000000000 else 0)


@pytest.mark.usefixtures("no_driver")
def test_cuda_array_interface() -> None:
    view = U(OnDevice())
    assert view.pointer == 0x7F0000000000 and view.layout.library == "cai" and view.layout.where() == "cuda:0"
    assert U(OnDevice(strides=(96, 8))).layout.pitch == 96
    assert [launch_stream(U(OnDevice(stream=s))) for s in (None, 1, 2, 77)] == [None, None, 2, 77]
    assert launch_stream(view, 5) == 5
    with pytest.raises(ArrayError, match="read-only"):
        OUT(OnDevice(data=(0x7F0000000000, True)))
    with pytest.raises(ArrayError, match="not a multiple"):
        U(OnDevice(data=(0x7F0000000004, False)))
    with pytest.raises(ArrayError, match="byte order"):
        U(OnDevice(typestr=">f8"))
    with pytest.raises(ArrayError, match="masked"):
        U(OnDevice(mask=object()))
    with pytest.raises(ArrayError, match="not valid"):
        U(OnDevice(typestr="nonsense"))
    with pytest.raises(ArrayError, match="strides"):
        U(OnDevice(strides=(8, 48)))
    with pytest.raises(ArrayError, match="pass out="):
        empty_like(view)
    with pytest.raises(ArrayError, match=r"on cuda:0"):
        host_array(view)


@pytest.mark.usefixtures("no_driver")
def test_two_devices() -> None:
    one, other = OnDevice(), OnDevice(data=(0x7F1000000000, False))
    with pytest.raises(ArrayError, match="u is on cuda:0 and out on cuda:1"):
        check_together([("u", U(one))], ("out", OUT(other)))
    with pytest.raises(ArrayError, match="u is on the host and c on cuda:0"):
        check_together([("u", U(field()))], ("c", U(one)))


class HostDLPack:
    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_dlpack_on_the_host_shares_memory() -> None:
    a = field()
    a[2, 3] = 7
    view = U(HostDLPack(a))
    assert view.pointer == a.ctypes.data and host_array(view)[2, 3] == 7


class DeviceDLPack(HostDLPack):
    """Host memory that claims to be CUDA's: enough to test how the structure is read."""

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i4", "u1", "i8", "?"])
def test_dlpack_structure(dtype: str) -> None:
    a = field((6, 13), dtype)[:, 2:12]
    view = describe(DeviceDLPack(a))
    assert (view.pointer, view.layout.shape, view.layout.strides) == (a.ctypes.data, a.shape, a.strides)
    assert view.layout.dtype == a.dtype and view.layout.device_kind == "cuda"
    with pytest.raises(ArrayError, match=r"complex|type code"):
        describe(DeviceDLPack(field(dtype="c16")))


# ------------------------------------------------------------------------------------------------------------ torch


def test_torch_on_the_host() -> None:
    torch = pytest.importorskip("torch")
    t = torch.zeros((6, 10), dtype=torch.float64)
    view = U(t)
    assert view.layout.library == "torch" and view.layout.device_kind == "host" and view.layout.contiguous
    host_array(view)[1, 2] = 5
    assert t[1, 2] == 5 and launch_stream(view) is None
    assert describe(t).layout is view.layout
    new = empty_like(view)
    assert isinstance(new, torch.Tensor) and new.dtype == t.dtype and new.shape == t.shape
    half = torch.ones((2, 3), dtype=torch.bfloat16)
    shared = host_array(describe(half))
    assert shared.dtype == ml_dtypes.bfloat16 and shared.astype("f4").sum() == 6
    assert empty_like(describe(t), dtype="f4").dtype == torch.float32


def test_torch_refused() -> None:
    torch = pytest.importorskip("torch")
    f8 = {"dtype": torch.float64}
    cases = [
        (torch.zeros((6, 10), requires_grad=True, **f8), "detach"),
        (torch.zeros((6, 10)), "float32"),
        (torch.zeros((10, 6), **f8).T, "contiguous"),
        (torch.zeros((6, 10), **f8).to_sparse(), "dense"),
        (torch.zeros((6, 10), dtype=torch.complex64), "complex64"),
        (torch.zeros((6, 10), device="meta", **f8), "meta"),
    ]
    for tensor, word in cases:
        with pytest.raises(ArrayError, match=word):
            U(tensor)
    t = torch.zeros((6, 10), **f8)
    with pytest.raises(ArrayError, match="shares memory"):
        check_together([("u", U(t))], ("out", OUT(t.numpy())))


def test_many_layouts_do_not_pile_up() -> None:
    for n in range(1, views.LAYOUTS_KEPT + 50):
        describe(np.empty(n, "u1"))
    assert views.numpy_layout.cache_info().currsize <= views.LAYOUTS_KEPT
