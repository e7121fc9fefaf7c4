"""Calls of the public API with a wrong thing in one place: an answer, or an error with a remedy."""

from __future__ import annotations

import contextlib
import fractions
import importlib.util
import io
import os
import pathlib
import pickle
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsegen as sg
from sparsegen.cli import main
from sparsegen.dsl.operands import Parameter
from tests.fuzz.finding import Draw, refused
from tests.nm_kit import matrix as pruned
from tests.products_kit import matrix

NUMBERS: tuple[Any, ...] = (
    True, 0, -1, 1, 2**31, 10**30, 1.5, float("nan"), float("inf"), 1 + 2j, np.float32(2), np.int64(4), np.array(5),
    fractions.Fraction(1, 3), np.complex64(1 + 2j), np.array(1 + 2j), np.ma.masked, np.True_,
)  # fmt: skip
STRINGS: tuple[Any, ...] = (
    "", "auto", "f64", "\0", "a" * 5000, b"x", "direct", "bitmap cols=8", pathlib.Path("/nowhere"), "\ud800", "é",
)  # fmt: skip
SEQUENCES: tuple[Any, ...] = (
    [], (), {}, set(), [[]], [1, [2]], (3, 3), (0, 0), (-1, 4), (10**12, 10**12), (3.0, 3), ("a", "b"), range(3),
    (None,), ((),), {0: sg.frozen}, ((sg.periodic, sg.periodic),),
)  # fmt: skip
ARRAYS: tuple[Any, ...] = (
    np.zeros(3), np.zeros((3, 3)), np.zeros((0, 3)), np.array(["a"]), np.array(None), np.full((3, 3), np.nan),
    np.array([0, 2, 1, 4]), np.array([0, 1, 2, 9]), np.array([0, 1, -2, 3]), np.array([0, 3, 2, 4, 4]), np.arange(4),
    np.arange(5.0), np.ones((4, 1, 1), np.float32), np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]),
    np.ones((3, 3), complex), np.ones((3, 3), object),
)  # fmt: skip
JUNK = (None, object(), int, len, slice(2), Ellipsis, np.dtype("f8"), *NUMBERS, *STRINGS, *SEQUENCES, *ARRAYS)
HEAT = sg.Stencil.from_weights(np.array([[0, 0.1, 0], [0.1, 0.6, 0.1], [0, 0.1, 0]]))
W = matrix(48, 64)
ROWS = sg.sparse(sp.csr_array(np.eye(8, 6, dtype=np.float32)), "csr")
ON: dict[str, Any] = {"device": "h200", "backend": "emulator"}
K = sg.compile(HEAT, (16, 32), 2, **ON)
P = sg.compile(sg.spmm(W, n=4, bias=True), **ON)


@sg.stencil
def WAVE(u: sg.Field, c: sg.Coef) -> sg.Value:
    return u[0] + c[0] * (u[1] - u[-1])


U = sg.compile(WAVE, (64,), 2, **ON)


def decorated(function: Any, **options: Any) -> Any:
    """The decorator with options, and without."""
    return sg.stencil(**options)(function), sg.stencil(function)


SCIPY = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")


def of_rows(kind: str, data: Any, indices: Any, indptr: Any, shape: Any, format: str, dtype: Any) -> Any:
    """A sparse matrix of scipy whose arrays were changed behind its back, and which says to be of another shape."""
    w: Any = sp.csr_array(np.eye(4, 5, dtype=np.float32)).asformat(kind)
    for names, given in ((("data",), data), (("indices", "row", "offsets"), indices), (("indptr", "col"), indptr),
                         (("_shape",), shape)):  # fmt: skip
        for name in names:
            if given is not None and hasattr(w, name):
                try:
                    setattr(w, name, given)
                except Exception:
                    return None  # scipy's own refusal
    return sg.sparse(w, format, dtype=dtype)


def command(**options: Any) -> Any:
    """A command line; what argparse refuses is refused."""
    words = [str(options.pop("command")), *([str(options.pop("file"))] if "file" in options else [])]
    words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            status = main(words)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 2
    if status not in (0, 1, 2) or "Traceback" in said.getvalue():
        raise AssertionError(f"status {status}: {said.getvalue()[-300:]}")


def copied(format: Any, dtype: Any) -> Any:
    """A matrix by way of a pickle."""
    w = sg.sparse(W.to_dense(), format, dtype=dtype)
    again = pickle.loads(pickle.dumps(w))
    assert np.array_equal(again.to_dense(), w.to_dense()) and again.format == w.format
    return again.stats(), again.to_scipy()


FILE = str(pathlib.Path(__file__).parent.parent.parent / "examples" / "wave.py") + ":wave"
EYE = np.eye(4, 5, dtype=np.float32)
SIDES = ((sg.periodic, sg.periodic),)
CODE = (("read", "u", 0, (0,)), ("const", 2.0), ("mul", 0, 1), ("read", "c", 0, (1,)), ("add", 2, 3))

#: Functions with arguments that they take.
CALLS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (sg.Stencil.from_weights, {"w": np.ones((3, 3)), "boundary": sg.periodic, "name": "a", "dtype": "f64"}),
    (sg.Stencil, {"weights": np.ones(3), "dtype": "f64", "sides": SIDES, "name": "a"}),
    (sg.Update, {"parameters": (Parameter("u"), Parameter("c", coef=True)), "code": CODE, "results": (4,),
                 "dtype": "f64", "sides": (SIDES,), "name": "a"}),
    (Parameter, {"name": "u", "levels": 1, "coef": False}),
    (decorated, {"function": lambda u: u[0] + u[1], "dtype": "f64", "boundary": sg.periodic, "name": "a"}),
    (lambda v: sg.stencil(lambda u: v * u[0] + u[1] / v), {"v": 2.0}),
    (lambda v: sg.stencil(lambda u: sg.where(u[0] > v, sg.max(u[0], v), v) + u[0] ** v), {"v": 2}),
    (lambda v: sg.stencil(lambda u: u[v] + u[0]), {"v": 1}),
    (lambda a, b: (sg.sqrt(a), sg.abs(a), sg.min(a, b), sg.max(a, b)), {"a": 1.0, "b": 2}),
    (lambda a: (sg.exp(a), sg.log(a), sg.sin(a), sg.cos(a), sg.tanh(a)), {"a": 1.0}),
    (sg.pow, {"a": 1.5, "b": 2}),
    (sg.clip, {"a": 1.0, "low": 0.5, "high": 2}),
    (sg.where, {"condition": True, "a": 1.0, "b": 2.0}),
    (sg.Field, {"levels": 2}),
    (sg.tune, {"stencil": HEAT, "shape": (16, 32), "steps": 2, "device": "auto", "nonfinite": "any", "top": 2,
               "repeats": 2, "again": False}),
    (sg.compile, {"stencil": HEAT, "shape": (16, 32), "steps": 2, "schedule": "auto", "nonfinite": "any", **ON}),
    (sg.compile, {"stencil": WAVE, "shape": (64,), "steps": 2, "schedule": "auto", "nonfinite": "any", **ON}),
    (sg.compile, {"stencil": sg.spmm(W, n=4), "shape": (), "steps": 1, "schedule": "auto", **ON}),
    (sg.compile, {"stencil": sg.spmm(pruned(40, 70, 8, 32), n=2), "schedule": "nm_lanes cols=1 warps=1x4", **ON}),
    (sg.schedules, {"stencil": HEAT, "shape": (16, 32), "steps": 2, "device": "h200"}),
    (sg.spmm, {"w": W, "n": 4, "bias": False, "scale": False, "residual": False, "activation": None}),
    (sg.sparse, {"w": np.eye(16, dtype=np.float16), "format": "bitmap", "dtype": "f16"}),
    *((partial(of_rows, kind), {"data": None, "indices": None, "indptr": None, "shape": None, "format": format,
                                "dtype": "f16"}) for kind in SCIPY for format in ("csr", "bitmap")),
    (sg.sparse, {"w": np.eye(16, dtype=np.float16), "format": "nm", "n": 2, "m": 4, "vector": (1, 2), "dtype": "f16"}),
    (sg.prune, {"w": np.ones((4, 16)), "pattern": "nm", "n": 2, "m": 4, "vector": 2, "importance": np.ones(16)}),
    (sg.prune, {"w": np.ones((4, 16)), "pattern": "vector", "vector": 2, "sparsity": 0.5, "importance": np.ones(16)}),
    (sg.quantize, {"w": np.ones((4, 16)), "bits": 8, "rows": True, "zero_point": 0, "dtype": "e4m3"}),
    (sg.pack4, {"x": np.ones((4, 16), np.int8)}),
    (sg.unpack4, {"packed": np.ones((4, 16), np.uint8)}),
    (sg.pattern.vectors, {"mask": np.ones((4, 16), bool), "height": 2}),
    (sg.pattern.local, {"seq": 16, "window": 2}),
    (sg.pattern.strided, {"seq": 16, "stride": 3, "window": 2}),
    (sg.pattern.bigbird, {"seq": 16, "block": 2, "window_blocks": 3, "global_blocks": 1,
                          "random_blocks": 1, "seed": 0}),
    (sg.load, {"path": "/nowhere"}),
    (sg.dirichlet, {"value": 1.0}),
    (sg.Schedule.parse, {"line": "tiled tile=8x32"}),
    (sg.StencilSchedule, {"family": "tiled", "tile": (8, 32), "warps": 2, "stages": 2, "fuse": 1}),
    (sg.SpmmSchedule, {"family": "bitmap", "cols": 8, "warps": (1, 4), "rows": 1}),
    (sg.SpmmSchedule, {"family": "nm_lanes", "cols": 4, "warps": (1, 4)}),
    (sg.SpmmSchedule, {"family": "nm_gather", "rows": 64, "cols": 32, "stages": 3}),
    (sg.SpmmSchedule, {"family": "nm_decode", "rows": 64, "cols": 32, "stages": 3, "teams": 2}),
    (sg.SpmmSchedule, {"family": "nm_windows", "cols": 2, "warps": 8, "layout": "windows"}),
    (sg.SpmmSchedule, {"family": "nm_outer", "rows": 64, "cols": 64, "each": 8, "deep": 32, "stages": 3}),
    (sg.SpmmSchedule, {"family": "nm_24", "rows": 64, "cols": 32, "stages": 3}),
    (sg.SpmmSchedule, {"family": "hybrid", "high": 1, "cols": 64, "warps": (1, 4), "slices": 2, "stages": 3}),
    (sg.SpmmSchedule, {"family": "blocked_ell", "cols": 64, "warps": (1, 4), "stages": 3, "team": (8, 2), "cut": 64}),
    (sg.SpmmSchedule, {"family": "nm_strips", "strip": 32, "warps": (4, 2), "cols": 64, "kept": 16, "stages": 3}),
    (K, {"u": np.zeros((16, 32)), "out": np.zeros((16, 32)), "steps": 2, "stream": None}),
    (U, {"u": np.zeros(64), "c": np.zeros(64), "out": np.zeros(64), "steps": 2, "stream": None}),
    (P, {"x": np.zeros((64, 4), np.float16), "bias": np.zeros(48, np.float16), "out": None, "stream": None}),
    (K.random, {"seed": 1}),
    (K.check, {"u": np.zeros((16, 32))}),
    (U.check, {"u": np.zeros(64), "c": np.zeros(64)}),
    (K.bench, {"u": np.zeros((16, 32)), "repeats": 1, "steps": 2}),
    (P.bench, {"x": np.zeros((64, 4), np.float16), "bias": np.zeros(48, np.float16), "repeats": 1}),
    (K.ir, {"level": "warp"}),
    (P.ir, {"level": "tile"}),
    (K.export, {"path": "kernel.cu"}),
    (K.explain().save, {"path": "page.svg"}),
    (K.explain().json, {"indent": 2}),
    (P.explain().save, {"path": "page.json"}),
    (lambda: (K.counts(), U.counts(), P.counts()), {}),
    (W.save, {"path": "w.sg"}),
    (copied, {"format": "bitmap", "dtype": "f16"}),
    (lambda format: (sg.sparse(W.to_dense(), format).stats(), W.to_scipy(), W.to_host()), {"format": "bitmap"}),
    (command, {"command": "explain", "file": FILE, "device": "h200", "shape": "64x64", "steps": 2, "schedule": "auto"}),
    (command, {"command": "explain", "file": FILE, "device": "a100", "picture": "a.svg"}),
    (command, {"command": "gen", "file": FILE, "device": "h200", "shape": "64x64", "level": "warp", "out": "a.sgir"}),
    (command, {"command": "gen", "file": FILE, "device": "h200", "shape": "64x64", "export": "a.cu"}),
    (command, {"command": "run", "file": FILE, "device": "h200", "shape": "32x32", "backend": "reference",
               "out": "a.npy", "seed": 1}),
    (command, {"command": "bench", "file": FILE, "shape": "32x32", "backend": "reference", "repeats": 1,
               "seconds": 0.1}),
    (command, {"command": "bench", "suite": "spine", "out": "a.json", "part": "x", "floor": "a b"}),
    (command, {"command": "opt", "file": "a.sgir", "passes": "to-warp", "load": "a.py"}),
    (command, {"command": "cache", "file": "info"}),
    (command, {"command": "calibrate", "out": "a.toml"}),
]  # fmt: skip

if importlib.util.find_spec("torch"):
    import torch

    import sparsegen.torch as st

    LINEAR = torch.nn.Linear(32, 24, dtype=torch.float16)
    LAYER = st.SparseLinear.from_linear(LINEAR, sparsity=0.5)
    CALLS += [
        (st.SparseLinear, {"in_features": 32, "out_features": 24, "bias": True, "device": "cpu",
                           "dtype": torch.float16, "dense_above": None, "pattern": "nm", "n": 2, "m": 4, "vector": 2}),
        (st.SparseLinear.from_linear, {"linear": LINEAR, "sparsity": 0.5, "mask": None, "tokens": 2,
                                       "dense_above": "auto"}),
        (st.SparseLinear.from_linear, {"linear": LINEAR, "pattern": "nm", "n": 2, "m": 8, "vector": 4,
                                       "importance": np.ones(32)}),
        (st.magnitude_mask, {"weight": LINEAR.weight, "sparsity": 0.5}),
        (LAYER, {"x": torch.zeros(2, 32, dtype=torch.float16)}),
        (LAYER.prepare, {"tokens": (1, 2)}),
        (sg.sparse, {"w": torch.eye(16, dtype=torch.float16), "format": "bitmap", "dtype": "f16"}),
    ]  # fmt: skip


def junk(function: Callable[..., Any], name: str) -> list[Any]:
    """What an argument is replaced by: nothing that is right and takes long, nor a place where others write."""
    long = name in ("steps", "repeats")
    taken = [j for j in JUNK if not (long and isinstance(j, int) and 9 < j < 2**63)]
    if function is command:  # a word that argparse takes for an option, or none that a shell could pass
        taken = [j for j in taken if not isinstance(j, np.ndarray) and "\0" not in str(j)]
    return taken


def api(draw: Draw) -> None:
    """One argument, or two, of a call replaced."""
    function, arguments = draw.choice(CALLS)
    given = dict(arguments)
    for _ in range(draw.choice((1, 1, 1, 2)) if given else 0):
        name = draw.choice(list(given))
        given[name] = draw.choice(junk(function, name))
    attempt(function, given)


def attempt(function: Callable[..., Any], given: dict[str, Any]) -> None:
    """A call, in a folder of its own."""
    said = ", ".join(f"{name}={_short(value)}" for name, value in given.items())
    before = os.getcwd()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            refused(lambda: function(**given), f"{getattr(function, '__qualname__', function)}({said})")
        finally:
            os.chdir(before)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 120 else f"{text[:100]}..."
