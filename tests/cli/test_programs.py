"""``sparsegen run FILE.sgir`` and ``sparsegen opt --load``: programs in text form, in a process of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sparsegen as sg
from sparsegen import cli
from tests.cli.test_cli import FILE, run

ADD = """\
module "add"
warp.func "add", [@a: global s32[64] align=16, @b: global s32[64] align=16, %n: s32[0,100], @c: global s32[64] align=16], [], [2, 1, 1], 32 {
  %at: s32[0,63] = warp.let %bx * 32 + %tid
  %x: s32 = warp.ld @a, %at
  %y: s32 = warp.ld @b, %at
  %s: s32 = warp.let %x + %y + %n
  warp.st @c, %at, [%s]
}
"""  # noqa: E501 - a line of the text form
PASS = """\
from dataclasses import dataclass, replace

from sparsegen.ir import warp as w
from sparsegen.ir.node import rewrite
from sparsegen.ir.passes import register


@register("no-barriers")
@dataclass(frozen=True)
class NoBarriers:
    \"\"\"Drops every barrier.\"\"\"

    def run(self, module):
        return replace(module, funcs=rewrite(module.funcs, lambda op: None if isinstance(op, w.Barrier) else op))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "heat.py").write_text(FILE)
    (tmp_path / "add.sgir").write_text(ADD)
    (tmp_path / "my_pass.py").write_text(PASS)
    return tmp_path


@pytest.fixture
def heat(folder: Path) -> Path:
    common = ("heat.py", "--shape", "20x34", "--schedule", "tiled fuse=2", "--device", "h200")
    run(folder, "gen", *common, "--level", "warp", "--out", "heat.sgir")
    return folder


def test_a_kernels_text_computes_what_the_kernel_does(heat: Path) -> None:
    u = np.random.default_rng(3).random((20, 34))
    np.save(heat / "u.npy", u)
    said = run(heat, "run", "heat.sgir", "--backend", "emulator", "--array", "in=u.npy", "--out", "o.npy").stdout
    stencil = cli.stencils(f"{heat / 'heat.py'}:heat")["heat"]
    k = sg.compile(stencil, u.shape, 2, device="h200", backend="emulator", schedule="tiled fuse=2")  # type: ignore[call-overload]
    assert np.array_equal(np.load(heat / "o.npy"), k(u))
    assert "in               f64[680], given" in said and "heat.w " in said and ", from heat.sgir" in said
    for symbol in ("heat", "heat_rim"):
        assert f"\n{symbol} on the emulator: 0 errors" in said


def test_a_program_without_launches_takes_its_parameters_as_roles(folder: Path) -> None:
    for name, value in (("a", np.arange(64, dtype=np.int32)), ("n", np.array([7], np.int32))):
        np.save(folder / f"{name}.npy", value)
    args = ("add.sgir", "--array", "a=a.npy", "--array", "n=n.npy", "--out", "c=c.npy", "--seed", "5")
    said = run(folder, "run", *args, "--backend", "emulator").stdout
    b = np.random.default_rng(5).integers(0, 8, 64)
    assert np.array_equal(np.load(folder / "c.npy"), np.arange(64) + b + 7)
    assert "b                s32[64], random, seed 5" in said and "c                s32[64], zeros" in said


def test_a_pass_of_the_users_file_and_what_the_emulator_finds_then(heat: Path) -> None:
    assert "no-barriers" in run(heat, "opt", "--load", "my_pass.py", "--list").stdout.split()
    run(heat, "opt", "heat.sgir", "--load", "my_pass.py", "-p", "no-barriers,dce", "--out", "less.sgir")
    text = (heat / "less.sgir").read_text()
    assert "warp.barrier" not in text and 'constant "heat.w"' in text
    said = run(heat, "run", "less.sgir", "--backend", "emulator", status=1).stdout
    assert "race" in said and "remedy" in said


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("--array", "u=a.npy"), "no launch has an array 'u'"),
        (("--array", "a"), "'a' names no role"),
        (("--array", "a=a.npy"), "array 'a' is 3 x float64, not 64 x int32"),
        (("--array", "a=add.sgir"), "cannot read add.sgir: it holds no array"),
        (("--out", "o.npy"), "no launch has an array 'out'"),
        (("--backend", "reference"), "a program has no reference"),
        (("--shape", "3x3"), "are for stencils"),
    ],
)
def test_errors(
    args: tuple[str, ...], what: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    np.save("a.npy", np.zeros(3))
    assert cli.main(("run", "add.sgir", *args)) == cli.WRONG
    assert what in (err := capsys.readouterr().err) and "remedy:" in err


def test_only_the_warp_level_runs(folder: Path) -> None:
    run(folder, "gen", "heat.py", "--shape", "20x34", "--schedule", "direct", "--level", "tile", "--out", "tile.sgir")
    err = run(folder, "run", "tile.sgir", status=2).stderr
    assert "tile.func cannot run" in err and "to-warp" in err
