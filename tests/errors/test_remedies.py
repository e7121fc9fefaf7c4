"""The remedies of refused dtypes lead to what is taken: each is followed, of every library's dtypes."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sparsegen as sg

DTYPES = [np.dtype(name) for name in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "u4", "?", "c8", "c16", "g")]
DTYPES += [np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4")]
HEAT = np.array([[0, 0.125, 0], [0.125, 0.5, 0.125], [0, 0.125, 0]])
ON: dict[str, Any] = {"device": "h200", "backend": "reference"}


@sg.stencil
def squared(u: Any) -> Any:
    return u[0, 0] * u[0, 1]


def refused(attempt: Any) -> str | None:
    """The remedy; None if there is no need of one."""
    try:
        attempt()
    except sg.SparsegenError as error:
        assert error.hint
        return error.hint
    return None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("what", [sg.Stencil.from_weights(HEAT), squared], ids=str)
def test_fields(what: Any, dtype: Any) -> None:
    kernel, u = sg.compile(what, (8, 16), **ON), np.ones((8, 16)).astype(dtype)
    remedy = refused(lambda: kernel(u))
    assert (remedy is None) == (dtype == np.float64)
    if dtype.kind == "c":
        kernel(u.real.astype(re.search(r"a\.real\.astype\('(\w+)'\)", remedy or "")[1]))  # type: ignore[index]
    elif remedy:
        kernel(u.astype(re.search(r"convert it to (\w+)", remedy)[1]))  # type: ignore[index]
        assert ("dtype=" in remedy) == (dtype.name in ("float32", "float16", "bfloat16", "uint8"))
    if remedy and (named := re.search(r"with dtype='(\w+)'", remedy)):
        again: Any = sg.stencil(dtype=named[1]) if what is squared else partial(sg.Stencil.from_weights, dtype=named[1])
        other = again(lambda u: u[0, 0] * u[0, 1]) if what is squared else again(HEAT)
        sg.compile(other, (8, 16), **ON)(u)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_of_stencils(dtype: Any) -> None:
    w = np.ones((3, 3)).astype(dtype)
    remedy = refused(lambda: sg.Stencil.from_weights(w))
    assert (remedy is None) == (dtype.name in ("float64", "float32", "float16", "bfloat16"))
    for name in re.findall(r"(?:float\d+)", remedy or ""):
        sg.Stencil.from_weights(w.astype(name))
    for way in re.findall(r"w\.astype\(\w+\)", remedy or ""):
        sg.Stencil.from_weights(eval(way))


CALLS = re.compile(r"w\.\w+\([^()]*\)")


def follow(w: Any, encode: Any, remedy: str) -> None:
    """Every call that the remedy names makes something of ``w`` that is encoded."""
    parts = [w.real, w.imag] if "w.real and w.imag" in remedy else [w]
    if len(parts) > 1:
        remedy = refused(lambda: encode(parts[0])) or ""
    torch = "torch" in type(w).__module__
    numpy_says, _, torch_says = remedy.partition("; in torch")
    for call in CALLS.findall(torch_says if torch else numpy_says):
        for w in parts:
            encode(eval(call, {"w": w, "np": np, "ml_dtypes": ml_dtypes}))


FORMATS = [("bitmap", None), ("csr", None), ("csr", "f32"), ("bitmap", "bf16"), ("tca_bme", "f16")]


@pytest.mark.filterwarnings("ignore::sparsegen.formats.encode.LargerWarning")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("format", "name"), [*FORMATS, ("nm", None), ("nm", "bf16")])
def test_sparse_weights(format: str, name: str | None, dtype: Any) -> None:
    w = np.eye(32).astype(dtype)
    remedy = refused(lambda: sg.sparse(w, format, dtype=name))
    if remedy:
        follow(w, lambda a: sg.sparse(a, format, dtype=name), remedy)


@pytest.mark.parametrize(("format", "name"), FORMATS)
def test_sparse_weights_of_torch(format: str, name: str | None) -> None:
    torch: Any = pytest.importorskip("torch")
    for kind in sorted({k for k in vars(torch).values() if isinstance(k, torch.dtype)}, key=str):
        try:
            w = torch.eye(32).to(kind)
        except (RuntimeError, NotImplementedError):
            continue  # quantised, or fewer than eight bits
        remedy = refused(lambda w=w: sg.sparse(w, format, dtype=name))  # type: ignore[misc]
        if remedy:
            assert "nothing is cast" in remedy or "two matrices" in remedy, kind
            follow(w, lambda a: sg.sparse(a, format, dtype=name), remedy)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "?", "c8", "c16", "g"])
@pytest.mark.parametrize("format", ["bitmap", "csr", "nm"])
def test_sparse_weights_of_scipy(format: str, dtype: str) -> None:
    sp: Any = pytest.importorskip("scipy.sparse")
    w = sp.eye_array(32, format="csr").astype(dtype)
    remedy = refused(lambda: sg.sparse(w, format)) or ""
    for call in re.findall(r"sg\.sparse\(w[^ ]*(?: dtype='\w+'\))", remedy):
        eval(call.replace(", dtype", f", {format!r}, dtype"))
    for named in re.findall(r"dtype='(\w+)'", remedy):
        if "sg.sparse" not in remedy:
            sg.sparse(w, format, dtype=named)


def quantised(w: Any, remedy: str) -> None:
    """The call of ``sg.quantize`` that a remedy names, if any, makes what is encoded; of floats that it refuses too."""
    if found := re.search(r"(sg\.quantize\((w\S*), bits=\d+\)), and encode q\.values with dtype='(\w+)'", remedy):
        call, of, name = found.groups()
        if refused(lambda: eval(call, {"w": w, "sg": sg})):
            w = eval(of, {"w": w}).astype(np.float32)
            call = call.replace(of, "w")
        sg.sparse(eval(call, {"w": w, "sg": sg}).values, "sr_bcrs", dtype=name)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [None, "i4", "i12", "u8"])
def test_sparse_integers(name: str | None, dtype: Any) -> None:
    """Floats are quantised, integers converted."""
    w = np.eye(32).astype(dtype)
    remedy = refused(lambda: sg.sparse(w, "sr_bcrs", dtype=name))
    if remedy and "w.real and w.imag" in remedy:
        w = w.real
        remedy = refused(lambda: sg.sparse(w, "sr_bcrs", dtype=name))
    if remedy:
        assert ("sg.quantize" in remedy) == ("float" in w.dtype.name)
        quantised(w, remedy)
        if "sg.quantize" not in remedy:
            follow(w, lambda a: sg.sparse(a, "sr_bcrs", dtype=name), remedy)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "?", "c8", "g", "u8"])
def test_sparse_integers_of_scipy(dtype: str) -> None:
    sp: Any = pytest.importorskip("scipy.sparse")
    w = sp.eye_array(32, format="csr").astype(dtype)
    remedy = refused(lambda: sg.sparse(w, "sr_bcrs")) or ""
    assert ("sg.quantize" in remedy) == (w.dtype.kind == "f") and remedy
    quantised(w, remedy)
    for call in re.findall(r"sg\.sparse\(w[^ ]*(?: dtype='\w+'\))", remedy):
        eval(call.replace(", dtype", ", 'sr_bcrs', dtype"))


NOT_REAL = [1 + 0j, np.complex64(1 + 2j), np.array(1 + 2j), np.ma.masked, np.ma.array(1.0, mask=True), "1", b"1", [1.0]]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("junk", NOT_REAL, ids=repr)
def test_nothing_of_a_number_is_dropped(junk: Any) -> None:
    """No imaginary part, no mask; words are no numbers."""
    ways: list[Any] = [
        lambda: sg.dirichlet(junk),
        lambda: sg.stencil(lambda u: u[0] + junk * u[1]),
        lambda: sg.stencil(lambda u: u[0] + u[1] * junk),
        lambda: sg.stencil(lambda u: u[0] / junk),
        lambda: sg.stencil(lambda u: sg.where(u[0] > junk, u[0], 0)),
        lambda: sg.stencil(lambda u: sg.max(u[0], junk)),
        lambda: sg.sqrt(junk),
        lambda: sg.exp(junk),
        lambda: sg.pow(2.0, junk),
        lambda: sg.clip(0.5, junk, 1.0),
        lambda: sg.abs(junk),
        lambda: sg.min(1.0, junk),
    ]
    for way in ways:
        with pytest.raises(sg.SparsegenError):
            way()


@pytest.mark.filterwarnings("error")
def test_no_mask_is_dropped() -> None:
    w = np.ma.array(HEAT, mask=HEAT == 0)
    for junk in (w, list(w), w.astype(np.float32)):
        with pytest.raises(sg.StencilError, match=r"masked array(.|\n)*w.filled\(0\)"):
            sg.Stencil.from_weights(junk)
    with pytest.raises(sg.StencilError, match="masked array"):
        sg.Stencil(w, "f64", ((sg.periodic, sg.periodic),) * 2)
    assert sg.Stencil.from_weights(w.filled(0)) == sg.Stencil.from_weights(HEAT)


def test_weights_of_a_tensor() -> None:
    torch: Any = pytest.importorskip("torch")
    for w in (torch.eye(3, dtype=torch.bfloat16), torch.eye(3, requires_grad=True), torch.eye(3).to(torch.float8_e5m2)):
        remedy = refused(lambda w=w: sg.Stencil.from_weights(w))  # type: ignore[misc]
        if remedy:
            sg.Stencil.from_weights(eval(re.search(r"w\.detach\S+", remedy)[0]))  # type: ignore[index]
