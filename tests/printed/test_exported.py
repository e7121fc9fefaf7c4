"""Exported files do what calls do: every pass of them, on arrays that a C++ program brings."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.backends.cuda.export import Array, Call, Loop, Room, export_files
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.ir import warp as w
from sparsegen.ir.builder import Builder
from sparsegen.ir.expr import Value
from sparsegen.ir.types import Buffer, f16, f64, s32
from sparsegen.plan import launches
from tests import mixed_kit, nm_kit
from tests.csr_kit import ragged
from tests.printed.compare import alike
from tests.printed.exported import called, declared
from tests.printed.program import compiled, folder, needs_compiler, translated
from tests.products_kit import matrix
from tests.programs import tensor_copies
from tests.sddmm_kit import mask
from tests.updates import made, wave
from tests.vectors_kit import quantized

SCHEDULES = ("direct fuse=1", "direct fuse=2", "tiled fuse=3", "stencil2row fuse=3")
#: Schedules of updates, and the time levels of their first field.
LEVELS = [(line, n) for line in ("direct", "stream levels=2", "stream levels=3") for n in (1, 2, 3)]
HOST = Path(__file__).resolve().parents[2] / "examples" / "host"
CROSS = np.array([[0, 0.1, 0], [0.2, 0.3, 0.1], [0, 0.2, 0]])
compile_for = partial(sg.compile, device="h200", backend="emulator")


def stencil(shape: tuple[int, ...], steps: int, schedule: str) -> Any:
    heat = sg.Stencil.from_weights(CROSS, boundary=sg.neumann, name="heat")
    return compile_for(heat, shape, steps, schedule=schedule)


def waves(steps: int, schedule: str) -> Any:
    return compile_for(wave(), (12, 14), steps, schedule=schedule)


def csr() -> Any:
    w = sg.sparse(ragged(60, 90, 10, full=2), format="csr", dtype="f32")
    line = "csr team=4x2 columns=4 unroll=2 cut=32 warps=2"
    return compile_for(sg.spmm(w, n=24, bias=True, residual=True, activation="relu"), schedule=line)


def bitmap() -> Any:
    product = sg.spmm(matrix(100, 300), n=16, scale=True)
    return compile_for(product, schedule="bitmap cols=16 warps=2x2 rows=2 splits=3")


def n_of_m() -> Any:
    product = sg.spmm(nm_kit.matrix(60, 90, 3, 10), n=5, bias=True, activation="silu")
    return compile_for(product, schedule="nm_lanes cols=4 warps=1x2")


def gathered() -> Any:
    """Rows of x of 13 elements are no whole pieces: a launch before writes them into the workspace."""
    product = sg.spmm(nm_kit.matrix(70, 90, 8, 32, (64, 1)), n=13, residual=True, activation="relu")
    return compile_for(product, schedule="nm_gather rows=64 cols=16 stages=2")


def spread() -> Any:
    product = sg.spmm(nm_kit.matrix(70, 90, 8, 32), n=16, bias=True)
    return compile_for(product, schedule="nm_decode rows=64 cols=16 stages=2 teams=2")


def windows() -> Any:
    product = sg.spmm(nm_kit.matrix(60, 390, 3, 10), n=5, bias=True, activation="silu")
    return compile_for(product, schedule="nm_windows cols=4 warps=4")


def outer() -> Any:
    """The same of f32, on CUDA cores."""
    product = sg.spmm(nm_kit.matrix(70, 90, 8, 32, (32, 1), "f32"), n=13, scale=True)
    return compile_for(product, schedule="nm_outer rows=32 cols=32 each=4 deep=32 stages=3")


def halved() -> Any:
    """Two tiles of a block's columns, and a last turn that is short."""
    product = sg.spmm(nm_kit.matrix(70, 90, 2, 4), n=24, bias=True)
    return compile_for(product, schedule="nm_24 rows=64 cols=16 stages=2")


def strips() -> Any:
    product = sg.spmm(nm_kit.matrix(70, 90, 8, 32, (32, 1)), n=24, bias=True, activation="relu")
    return compile_for(product, schedule="nm_strips strip=32 warps=2x1 cols=16 kept=16 stages=3")


def mixed() -> Any:
    product = sg.spmm(mixed_kit.matrix(70, 90), n=24, bias=True)
    return compile_for(product, schedule="hybrid high=2 cols=32 warps=1x2 mma=sync slices=1 stages=3 unroll=2")


def in_two() -> Any:
    """Dense tiles, and rows on top of the sums that they leave in the workspace."""
    product = sg.spmm(mixed_kit.matrix(70, 90, 16, format="blocked_ell"), n=24, bias=True)
    words = "cols=32 warps=1x2 stages=3 team=4x2 columns=8 unroll=2 cut=64"
    return compile_for(product, schedule=f"blocked_ell {words}")


def vectors() -> Any:
    """Rows of x of 33 integers are no whole pieces; rows of more than two steps are cut, and their pieces counted."""
    product = sg.spmm(quantized((40, 300), "i16"), n=33)
    return compile_for(product, device="a100", schedule="vector_strip wide=32 lists=2 warps=2 unroll=1 cut=2")


def sampled() -> Any:
    """Rows of a and b of 50 numbers are no whole pieces, so two launches come before."""
    product = sg.sddmm(mask(40, 70, 8, 0.6), k=50, dtype="i16", out="sr_bcrs")
    return compile_for(product, device="a100", schedule="strips rows=32 warps=2 groups=2 prefetch=on")


def few() -> Any:
    """Most of the pattern's columns are left out."""
    product = sg.sddmm(mask(40, 170, 4, 0.9), k=64, dtype="i4")
    return compile_for(product, schedule="gather warps=2 most=1 stages=3")


def driven(steps: int, schedule: str, dtype: str = "f64") -> Any:
    """A step with scalars, other ones in each step."""

    def heat(u: sg.Field, t: sg.Time, dt: sg.Scalar, power: sg.Scalar) -> sg.Value:
        return u[0, 0] + dt * (u[0, 1] + u[0, -1] - 2 * u[0, 0]) + power * sg.sin(t)

    return compile_for(sg.stencil(dtype=dtype, boundary=sg.neumann)(heat), (12, 40), steps, schedule=schedule)


def shots(steps: int, schedule: str, **batch: Any) -> Any:
    """Sources and receivers of a step with a scalar."""

    def flow(u: sg.Field, c: sg.Coef, dt: sg.Scalar) -> sg.Value:
        return u[0, 0] + dt * c[0, 0] * (u[0, 1] + u[1, 0] - 2 * u[0, 0])

    sites = {"shot": sg.Source([[3.0, 4.5], [9.0, 60.0]]), "heard": sg.Receiver([[5.0, 6.5], [3, 4], [0, 69]])}
    what = sg.stencil(dtype="f64", boundary=sg.periodic)(flow).with_sites(**sites)
    return compile_for(what, (12, 70), steps, schedule=schedule, **batch)


SHOTS = ["in_u_0", "in_c_0", "in_steps_shot", "out_u_0", "out_steps_heard", "scalars"]
BACK = ["in_u_0", "in_c_0", "in_steps_heard", "out_u_0", "out_steps_shot", "scalars"]
DRIVEN = ["in_u_0", "out_u_0", "scalars"]
WAVE = ["in_u_0", "in_u_1", "in_c_0", "out_u_0", "out_u_1"]
#: A kernel; the launches of its passes as the file has them; the arguments before the workspace; what is to be read.
CASES: dict[str, tuple[Any, int, list[str], str]] = {
    "rest": (lambda: stencil((24, 40), 12, "stream fuse=1 levels=7"), 4, ["in", "out"], "12 time steps: 1 pass of 5"),
    "padded": (lambda: stencil((19, 37), 9, "direct"), 5, ["in", "out"], "9 time steps: 9 passes of 1 step."),
    "table": (lambda: stencil((16, 32), 3, "stencil2row fuse=2 lut=on"), 3, ["in", "out"], "table_lut[2312]"),
    "wave": (lambda: waves(8, "direct"), 5, WAVE, "8 time steps: 8 passes of 1 step."),
    "levels": (lambda: waves(11, "stream levels=2 cols=4"), 4, WAVE, "11 time steps: 1 pass of 1 step, then 5 passes"),
    "copies": (lambda: waves(1, "direct"), 2, WAVE, "A call does 1 time step: "),
    "copied": (lambda: waves(1, "stream levels=1 cols=4"), 2, WAVE, "A call does 1 time step: "),
    "resident": (
        lambda: waves(5, "resident tiles=2x2 rows=2 cols=1 warps=5 every=2"), 0, WAVE, "cudaLaunchKernelEx(&how, ::"
    ),
    "scalars": (lambda: driven(8, "stream levels=3 cols=4", "f32"), 3, DRIVEN, "8 x 3 of float: of each time step dt,"),
    "scalars_back": (lambda: driven(3, "direct").adjoint("direct"), 3, DRIVEN, "step, the last one first, dt;"),
    "stepped": (lambda: driven(7, "direct"), 3, DRIVEN, "read before the call returns"),
    "all_scalars": (
        lambda: driven(5, "resident tiles=2x2 rows=2 cols=1 warps=4 every=2"), 0, DRIVEN, "MemcpyAsync(s_steps_scalars"
    ),
    "shots": (lambda: shots(8, "stream levels=3 cols=4"), 9, SHOTS, "out_steps_heard + step * 3"),
    "shots_of_a_batch": (lambda: shots(7, "direct", batch=2, shared="c"), 9, SHOTS, "out of heard, 2x7x3; 42 elements"),
    "shots_back": (
        lambda: shots(7, "direct").adjoint("stream levels=3 cols=4"), 9, BACK, "in_steps_heard + (6 - step) * 3",
    ),
    "shots_of_one_launch": (
        lambda: shots(7, "resident tiles=2x2 rows=2 cols=2 warps=4 every=1"), 1, SHOTS, "MemsetAsync(s_workspace_c"
    ),
    "bitmap": (bitmap, 1, ["in", "scale", "out", "index", "masks", "values"], "cudaMemsetAsync(s_workspace_counter"),
    "csr": (csr, 1, ["in", "bias", "residual", "out", "idx", "values", "segments"], "MemsetAsync(s_workspace_counter"),
    "nm_24": (halved, 1, ["in", "bias", "out", "kept", "words"], "4-bit codes: the places of two kept elements"),
    "nm_gather": (gathered, 2, ["in", "residual", "out", "tiles", "rows"], "columns that each tile of 64 rows keeps"),
    "nm_decode": (spread, 1, ["in", "bias", "out", "entries"], "the kept values, two a word"),
    "nm_windows": (windows, 1, ["in", "bias", "out", "values", "offsets"], "a window each"),
    "nm_outer": (outer, 2, ["in", "scale", "out", "values", "lists"], "of each kept column those of all rows"),
    "nm_strips": (strips, 1, ["in", "bias", "out", "values", "places", "rows"], "lane by lane (strip_values"),
    "hybrid": (
        mixed, 1, ["in", "bias", "out", "spans", "records", "columns", "tiles", "idx", "values"], "2 dense tiles high"
    ),
    "blocked_ell": (
        in_two, 2, ["in", "bias", "out", "spans", "records", "columns", "tiles", "idx", "values", "segments"],
        "zeros that fill block rows up too, as mma fragments",
    ),
    "strips": (sampled, 3, ["a", "b", "out", "tasks", "entries", "starts", "ptr"], "its first vector and the end"),
    "gather": (few, 1, ["a", "b", "out", "tasks", "columns", "places"], "the column of b of each vector"),
    "vector_strip": (vectors, 2, ["in", "out", "places", "tasks", "values", "cuts"], "cut into several tasks"),
    "nm_lanes": (n_of_m, 1, ["in", "bias", "out", "values", "offsets"], "of each tile of 32 rows"),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_a_file_does_what_a_call_does(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, launched, arguments, says = CASES[name]
    k = make()
    file = k.export(tmp_path / f"{name}.cu")
    text = file.read_text()
    assert text.count("<<<") == launched and says in text + file.with_suffix(".h").read_text()
    assert declared(file) == [*arguments, "workspace", "stream"]
    # of W's arrays those that the kernel reads: no pieces where no row is cut
    order = tuple(n for n in k._plan(k.steps).given if re.sub(r"\W", "_", n) in arguments)
    alike(k, monkeypatch, lambda plan, given, new: called(file, given, new, order, plan.scalars))
    compiled("-x", "c", "-std=c99", "-pedantic", "-Wall", "-Werror", "-fsyntax-only", f"{name}.h", within=tmp_path)


def order(text: str) -> list[list[str]]:
    """The arrays of each launch of an exported file, loops unrolled."""
    blocks = re.findall(r"^  (?:for \(.* i < (\d+); .*\) )?\{  //.*\n((?:    .*\n)+)  \}", text, re.M)
    launches = [(int(times or 1), re.findall(r"<<<.*>>>\((.*)\);", body)) for times, body in blocks]
    return [re.findall(r"\*\)(?!p_)(\w+)", args) for times, calls in launches for args in calls * times]


def levels(n: int) -> Any:
    """An update of a field of n levels and of one of one level."""
    space: dict[str, Any] = {"sg": sg}
    exec(f"def f(u: sg.Field(levels={n}), v):\n    return u[0, 0] + u.prev[0, 0] * {n > 2} * u[0, 0], v[0, 1]"
         if n > 1 else "def f(u, v):\n    return u[0, 0], v[0, 1]", space)  # fmt: skip
    return made(space["f"])


@pytest.mark.parametrize(("line", "n"), [*((line, 0) for line in SCHEDULES), *LEVELS])
def test_every_launch_of_a_plan_in_its_order(line: str, n: int, tmp_path: Path) -> None:
    """For many numbers of steps, on rows that are padded between passes and on others; of stencils, and of updates of
    a field of n levels."""
    for steps in (*range(int(line.partition("=")[2] or 1), 10), 23, 24):
        cols = 32 + steps % 2
        k = compile_for(levels(n), (8, cols), steps, schedule=line) if n else stencil((16, cols), steps, line)
        plan, text = k._plan(steps), k.export(tmp_path / "file.cu").read_text()
        wanted = []
        for step in plan.run():
            names = dict(step.arrays)
            arrays = [[names[r] for _, r in bound.roles if r in names] for bound in launches(step.program.warp)]
            wanted += [[re.sub(r"\W", "_", n if n in plan.given else f"s_{n}") for n in each] for each in arrays]
        assert order(text) == wanted, steps


@needs_compiler
def test_the_example_of_a_host(tmp_path: Path) -> None:
    """The program in C++ as users have it, with the exported file in another unit."""
    export = [sys.executable, str(HOST / "export_heat.py"), str(tmp_path)]
    subprocess.run(export, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    (tmp_path / "heat.cpp").write_text(translated((tmp_path / "heat.cu").read_text()))
    paths = [f"-I{tmp_path}", "-I.", str(HOST / "main.cpp"), f"{tmp_path}/heat.cpp", "-o", f"{tmp_path}/heat"]
    compiled(*paths, within=folder())
    done = subprocess.run([tmp_path / "heat"], check=True, capture_output=True, text=True, timeout=60).stdout
    u = np.zeros((48, 64))
    u[24, 32] = 1000
    for _ in range(11):
        u = u / 2 + sum(np.roll(u, by, axis) for by in (-1, 1) for axis in (0, 1)) / 8
    assert done == f"in the middle {u[24, 32]:.9f}, in all 1000.000000000\n"
    if nvcc := find_tool("nvcc"):
        command = [str(nvcc.path), "-c", f"-I{tmp_path}", str(HOST / "main.cpp"), "-o", str(tmp_path / "main.o")]
        subprocess.run(command, check=True)


def test_a_header_is_no_cuda_file(tmp_path: Path) -> None:
    with pytest.raises(sg.ArrayError, match="would be the header"):
        stencil((16, 32), 1, "direct").export(tmp_path / "heat.h")


def test_names_of_a_file_do_not_meet(tmp_path: Path) -> None:
    """Arguments, kernels and tables of any names; kernels of two files of one program have different names."""
    k = compile_for(sg.Stencil.from_weights(CROSS, name="stream"), (16, 32), schedule="direct")
    text = k.export(tmp_path / "in.2.cu").read_text()
    assert "::in_2_stream<<<" in text and "int in_2_run(" in text and (tmp_path / "in.2.h").exists()
    text = k.export(tmp_path / "stream.cu").read_text()
    assert "::stream_2<<<" in text


@needs_compiler
def test_tensor_maps(tmp_path: Path) -> None:
    """Of two matrices, one of them what a launch before has left: each map is made once a call, of its arrays."""
    boxes = tensor_copies.PROGRAMS["f16_64"]
    case = boxes.case(4)
    out = case.want["out"].size
    given = [Array("in", f16, case.args["x"].size, 16, False, "x"), Array("out", f16, out, 16, True, "boxes")]
    rooms = [Room(name, 2 * out, zero=False) for name in ("first", "second")]
    calls = Call(case.func, ("in", "first")), Call(case.func, ("in", "out")), Call(case.func, ("first", "second"))
    files = export_files("boxes", given, rooms, [Loop(2, calls, "all")], title="boxes")
    assert files.cuda.count("boxes_map(&") == 2 and files.cuda.count("x_map0)") == 1
    for kind, text in zip(("cu", "h"), files, strict=True):
        (tmp_path / f"boxes.{kind}").write_text(text)
    made = np.zeros(out, np.float16)
    called(tmp_path / "boxes.cu", {"in": case.args["x"]}, {"out": made}, ("in", "out"))
    assert not case.wrong({"out": made})
    if nvcc := find_tool("nvcc"):
        command = [str(nvcc.path), "-c", "-arch=sm_90", str(tmp_path / "boxes.cu"), "-o", str(tmp_path / "boxes.o")]
        subprocess.run(command, check=True)


@needs_compiler
def test_constants_of_every_kind(tmp_path: Path) -> None:
    """Tables in device memory (16-bit floats and infinities among them) and by value, and numbers."""
    n = 64
    params: list[Buffer | Value] = [Buffer("u", f64, n, "global"), Buffer("out", f64, n, "global"),
              Buffer("where", s32, n, "global"), Buffer("half", f16, 4, "global"), Buffer("wide", f64, 3, "global"),
              Buffer("by_value", f64, 3, "param"), Value("first", s32, 0, n)]  # fmt: skip
    u, out, where, half, wide, by_value, first = params
    b, func = Builder(), w.Func("all", (), (), (2, 1, 1), 32, ())
    at = func.builtins()
    b.reserve(*at, *(p.name for p in params))
    i = b.let("i", at["bx"] * 32 + at["tid"])
    x = b.fma(b.ld(u, b.ld(where, i, lo=0, hi=n - 1)), b.ld(by_value, 1), b.convert(b.ld(half, i % 4), f64))
    with b.if_(i.ge(first)):
        b.st(out, i, b.binary("min", x, b.ld(wide, i % 3)))
    with b.else_():
        b.st(out, i, b.ld(wide, i % 3))
    func = dataclasses.replace(func, params=tuple(params), body=b.ops())
    tables = {"where": np.arange(n, dtype=np.int32)[::-1].copy(), "half": np.array([1, 2, -0.1, 6e-8], np.float16),
              "wide": np.array([np.inf, 1.5, 4]), "by_value": np.array([0.1, -0.5, 2]),
              "first": np.array([7], np.int32)}  # fmt: skip
    given = [Array("in", f64, n, 8, False, "u"), Array("out", f64, n, 8, True, "out")]
    call = Call(func, ("in", "out", *tables.values()))
    files = export_files("tables", given, [], [Loop(1, (call,), "all")], title="a // title \\\nin two lines")
    for kind, text in zip(("cu", "h"), files, strict=True):
        (tmp_path / f"tables.{kind}").write_text(text)
    data, made = np.random.default_rng(0).random(n), np.zeros(n)
    called(tmp_path / "tables.cu", {"in": data}, {"out": made}, ("in", "out"))
    wanted = np.minimum(data[::-1] * -0.5 + tables["half"][np.arange(n) % 4], tables["wide"][np.arange(n) % 3])
    wanted[:7] = tables["wide"][np.arange(7) % 3]
    np.testing.assert_allclose(made, wanted, rtol=1e-15)
