"""Floors: what is read of a program's output, and programs that do not do what a floor must."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.bench import floors
from sparsegen.bench.floors import Floor, best, measure, parse, prepare
from sparsegen.ir.errors import ToolchainError

OUTPUT = """\
# NVIDIA H200 SMs=132
warp2d_T8_C4,Heat-2D,10240x10240x1,T=8,GSt/s=1208.0,err=2e-16 ok
BEST Heat-2D 1308.2 warp2d_T10_C4_PF8
BEST 1D5P 2390
BEST Box-2D49P 0.0
NOT THE BEST Heat-3D 1.0 x
"""


def program(folder: Path, text: str, name: str = "floor") -> str:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def test_only_figures_are_read() -> None:
    assert parse(OUTPUT, "p") == [
        Floor("Heat-2D", 1308.2, "warp2d_T10_C4_PF8", "p"), Floor("1D5P", 2390.0, "", "p")]  # fmt: skip


def test_the_fastest_counts_of_all_programs_or_of_one() -> None:
    found = [Floor("a", 3, "x", "p"), Floor("a", 5, "y", "q"), Floor("a", 4, "z", "p"), Floor("b", 9, "", "p")]
    assert best(found, "a") == found[1] and str(found[1]) == "q y" and str(found[3]) == "p"
    assert best(found, "p:a") == found[2]
    assert best(found, "c") is None and best(found, "q:b") is None and best(found, "") is None


def test_words_reach_the_program(tmp_path: Path) -> None:
    line = f"{program(tmp_path, 'echo BEST $1 2.5 $2')} 'Heat-2D' quick"
    assert measure(prepare(line, "sm_90a", tmp_path)) == [Floor("Heat-2D", 2.5, "quick", "floor")]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("echo nothing", "printed no figure"),
        ("echo no GPU >&2; exit 3", "ended with 3: no GPU"),
        ("exit 1", "no output"),
    ],
)
def test_a_program_that_is_no_floor(text: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=what):
        measure([program(tmp_path, text)])


def test_a_program_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "RUN_LIMIT", 0.2)
    with pytest.raises(ToolchainError, match="timed out"):
        measure([program(tmp_path, "exec sleep 20")])


@pytest.mark.parametrize(
    ("line", "what"), [("absent.cu", "no floor 'absent.cu'"), ("'a", "cannot be read"), (" ", "cannot")]
)
def test_a_line_that_names_nothing(line: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=what):
        prepare(line, "sm_90a", tmp_path)


@pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")
def test_a_source_is_compiled(tmp_path: Path) -> None:
    text = '#include <cstdio>\nint main(int n, char** a) { printf("BEST x %s.5 v\\n", a[n - 1]); }\n'
    (tmp_path / "hand.cu").write_text(text)
    command = prepare(f"{tmp_path}/hand.cu 1 2", "sm_90a", tmp_path)
    assert measure(command) == [Floor("x", 2.5, "v", "hand")]
    (tmp_path / "hand.cu").write_text("nonsense\n")
    with pytest.raises(ToolchainError, match="ended with"):
        prepare(f"{tmp_path}/hand.cu", "sm_90a", tmp_path)


@pytest.mark.parametrize(("suite", "part"), floors.OWN)
def test_a_checkout_brings_its_own(suite: str, part: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So that "of floor" can be measured anew: each program of ``benchmarks/floors`` belongs to a part of a suite."""
    lines = floors.own(suite, [part])
    words = [shlex.split(line) for line in lines]
    assert [" ".join((Path(file).name, *rest)) for file, *rest in words] == list(floors.OWN[suite, part])
    assert all(Path(file).is_file() for file, *_ in words)
    assert not floors.own(suite, ["widths"]) and not floors.own("csr", ["targets"])
    named = {line.split()[0] for each in floors.OWN.values() for line in each}
    assert named == {f.name for f in floors.FOLDER.glob("*.cu")}
    measured = Path(__file__).parents[2] / "docs" / "bench" / f"{suite}.json"
    if measured.is_file():
        rows = [row for row in json.loads(measured.read_text())["rows"] if row["part"] == part]
        assert not rows or any(row.get("floor_by") or row.get("floor") for row in rows)
    monkeypatch.setattr(floors, "FOLDER", tmp_path)
    assert not floors.own(suite, [part])


def test_floors_of_patterns() -> None:
    printed = """gather_cpasync_v128_nt256,f16,1024,4096,2048,16:32,VW128,27.5,30.0,6.1,5.2,600.1,2.1e-04,yes
ew_spmv_w16_ct1,f32,1,8192,8192,8:32,EW,20.4,25.9,9,0.1,6.6,1e-07,yes
gather_cpasync_LOADONLY,f16,1024,4096,2048,16:32,VW128,17.5,20.0,6.1,5.2,600.1,-1.0e+00,unchecked
"""
    found = parse(printed, "nm_floor")
    wide, narrow = (
        floors.pattern((2048, 4096, 1024), 16, 32, 128, "f16"),
        floors.pattern((8192, 8192, 1), 8, 32, 1, "f32"),
    )
    assert [f.name for f in found] == [f"{wide}, hot", f"{wide}, cold", f"{narrow}, hot", f"{narrow}, cold"]
    assert [round(1e6 / f.rate, 2) for f in found] == [27.5, 30.0, 20.4, 25.9]


def test_floors_of_vectors() -> None:
    printed = """RES,op,precision,variant,M,K,N,V,sparsity,pattern,us_hot,us_cold,check,note
RES,spmm,L8-R8,strip64_kh2_32w,4096,4096,256,8,0.70,uniform,14.80,19.00,exact,CTAs=128
RES,spmm,L8-R8,gather4,4096,4096,256,8,0.70,uniform,4.80,9.00,WRONG,CTAs=128
RES,spmm,L8-R8,ablation_fill_only,4096,4096,256,8,0.70,uniform,5.20,9.00,-,CTAs=128
RES,spmm,int8,cublas,4096,4096,256,8,0.50,dense,17.40,20.00,exact,B given as [N][K]
RES,spmm,L8-R8,strip64_kh2_32w_sigma0.5,4096,4096,256,8,0.70,lognormal,15.00,19.00,exact,CTAs=128
RES,spmm,L8-R8,strip64_kh2_32w_sigma1.0_nosplit,4096,4096,256,8,0.70,lognormal,21.20,25.00,exact,CTAs=128
RES,sddmm,L16-R16,strip128,4096,512,4096,8,0.90,uniform,31.70,36.00,exact,vectors=2
RES,attention,Q8K8V8-P8,fused_16w,4096,4096,64,8,0.90,uniform,20.20,24.90,relerr=0.0067,heads=4
RES,attention,Q8K8V8-P8,fused_16w_first_kernel_only,4096,4096,64,8,0.90,uniform,16.70,21.00,partial,heads=4
# all checks passed
"""
    found = parse(printed, "magicube_floor")
    square = (4096, 4096, 256)
    wanted = [
        (floors.vectors("spmm", "L8-R8", square, 8, 0.7), 14.8, 19.0),
        (floors.vectors("spmm", "int8", square, 8, 0.5), 17.4, 20.0),
        (floors.vectors("spmm", "L8-R8", square, 8, 0.7, 0.5), 15.0, 19.0),
        (floors.vectors("spmm", "L8-R8", square, 8, 0.7, 1.0), 21.2, 25.0),
        (floors.vectors("sddmm", "L16-R16", (4096, 512, 4096), 8, 0.9), 31.7, 36.0),
        (floors.vectors("attention", "Q8K8V8-P8", (4096, 4096, 64), 8, 0.9), 20.2, 24.9),
    ]
    times = [
        (f"{name}, {state}", took) for name, *took in wanted for state, took in zip(("hot", "cold"), took, strict=True)
    ]
    assert [(f.name, round(1e6 / f.rate, 2)) for f in found] == times
    assert best(found, f"{wanted[0][0]}, hot") == found[0] and str(found[0]) == "magicube_floor strip64_kh2_32w"


def test_a_program_of_several_parts_runs_once() -> None:
    assert len(floors.own("magicube", ["spmm", "mixed", "attention"])) == 1 and not floors.own("magicube", ["dlmc"])


def test_systems_of_equations_are_figures_too() -> None:
    output = (
        "so8_wave,f32,512^3,tile 128x16,RY=2,threads=256,GS/s=162.7,TB/s(16 B)=2.60,regs=126,err=4.7e-06 ok\n"
        "wave2d,f64,8192^2,T=8,C=4,GS/s=481,TB/s(40 B a pass)=2.41,regs=254,err=3.2e-14 ok\n"
        "wave2d,f64,8192^2,T=9,C=4,GS/s=999,TB/s(40 B a pass)=2.41,regs=254,err=3.2e-02 WRONG\n"
    )
    assert parse(output, "p") == [
        Floor("so8_wave f32", 162.7, "tile 128x16,RY=2,threads=256", "p"), Floor("wave2d f64", 481.0, "T=8,C=4", "p"),
    ]  # fmt: skip


def test_fields_that_stay_on_chip_are_figures_of_long_calls() -> None:
    output = (
        "onchip2d tagged cells,5pt,f64,256^2,T=8,C=1,RY=3,NW=16,sync=bar,blk/SM=1,tiles=16x8,GS/s 100 steps=151,"
        "1000 steps=185,us/step=0.355,no exchange=0.270,regs=56,spill=0,smem=42000,err=1e-15/2e-15 ok\n"
        "onchip3d tagged rows,7pt,f64,64^3,T=1,tile 64x8x4,NW=16,GS/s 100 steps=152,1000 steps=159,us/step=1.6,regs=99,"
        "spill=0,smem=30720,err=1e-15 ok\n"
        "onchip2d tagged cells,9pt,f64,256^2,T=8,C=1,GS/s 100 steps=1,1000 steps=2,err=1e-3/2e-3 WRONG\n"
    )
    assert [(floor.name, floor.rate) for floor in parse(output, "p")] == [("5pt f64 256^2", 185), ("7pt f64 64^3", 159)]
