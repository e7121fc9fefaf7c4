"""Examples of fields on grids, as a user starts them: they show what they are for, and fail where it is not so."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.boundary import resolve
from tests.examples.kit import EXAMPLES, ROOT, drawn, run


def test_all_examples_are_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for file in EXAMPLES.glob("[!_]*.py"):
        assert f"`examples/{file.name}`" in text or f"`{file.name}`" in text, file.name


# ------------------------------------------------------------------------------------------------ heat, convergence
def test_heat_converges_in_second_order(tmp_path: Path) -> None:
    said = run(tmp_path, "heat_convergence.py", "--size=32", "--picture=picture.png")
    table = re.findall(r"^ +(\d+) +(\d+) +(\S+) +([\d.]+|–)", said, re.MULTILINE)
    assert [int(row[0]) for row in table] == [4, 8, 16, 32]
    assert [int(row[1]) for row in table] == [4, 16, 64, 256]
    # sin(pi x) sin(pi y) is an eigenvector of the scheme too, so its error is known in closed form.
    for n, steps, error, _ in table:
        factor = 1 - 8 * 0.2 * np.sin(np.pi / int(n) / 2) ** 2
        exact = np.exp(-2 * np.pi**2 * int(steps) * 0.2 / int(n) ** 2)
        assert float(error) == pytest.approx(abs(factor ** int(steps) - exact), rel=0.01)
    assert all(1.9 < float(row[3]) < 2.2 for row in table[1:])
    assert drawn(tmp_path, said)


def test_a_wrong_scheme_does_not_converge(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("heat_convergence")
    w = module.heat.weights
    assert module.main(["--size=32"], sg.Stencil.from_weights(w, sg.dirichlet(0.0))) == 0
    assert module.main(["--size=32"], sg.Stencil.from_weights(w, sg.neumann)) == 1
    assert "the order is" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ a shot
def test_a_shot_is_heard_in_time_and_the_same_both_ways(tmp_path: Path) -> None:
    said = run(tmp_path, "acoustic_shot.py", "--size=64", "--steps=240", "--picture=picture.png")
    took, wanted = map(float, re.findall(r"takes (\d+) steps; speed says ([\d.]+)", said)[0])
    assert abs(took - wanted) <= 3 and float(re.findall(r"differs by (\S+) of", said)[0]) <= 1e-12
    assert drawn(tmp_path, said)


def test_another_medium_is_heard(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("acoustic_shot")

    @sg.stencil(boundary=sg.dirichlet(0.0))
    def slower(p: sg.Field(levels=2, spacing=1.0), c: sg.Coef, d: sg.Coef) -> Any:  # type: ignore[valid-type]
        field: Any = p
        return 2 * field[0, 0] - field.prev[0, 0] + 0.8 * c[0, 0] * field.laplace() + 0 * d[0, 0]  # type: ignore[index]

    assert module.main(["--size=64", "--steps=240"], slower) == 1
    assert "another time" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ diffusion in 3-D
def test_diffusion_conserves_heat(tmp_path: Path) -> None:
    said = run(tmp_path, "diffusion3d.py", "--size=12", "--steps=5", "--picture=picture.png")
    found = re.search(r"mean: (\S+) -> (\S+) degrees", said)
    assert found and found[1] == found[2] and float(found[1]) > 20
    first, last = re.findall(r"\|([^|\n]+)\|\n", said.split("after")[0]), re.findall(r"\|([^|\n]+)\|\n", said)
    assert len(last) == 2 * len(first) == 24 and "".join(first) != "".join(last[12:])
    assert drawn(tmp_path, said)


def test_an_open_box_does_not(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("diffusion3d")
    leaky = sg.Stencil.from_weights(module.diffusion.weights, sg.dirichlet(0.0))
    assert module.main(["--size=8", "--steps=3"], leaky) == 1
    assert "heat was not conserved" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ images
def test_a_batch_of_images_is_filtered(tmp_path: Path) -> None:
    said = run(tmp_path, "image_batch.py", "--size=24", "--count=3", "--picture=picture.png")
    (blurred, sharpened) = re.findall(r"neighbours differ by ([\d.]+) -> ([\d.]+)", said)
    assert float(blurred[1]) < float(blurred[0]) == float(sharpened[0]) < float(sharpened[1])
    assert "batch=3" in said
    assert drawn(tmp_path, said)


def test_other_edges_of_images_are_found_out(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert example("image_batch").main(["--size=16"], sg.periodic) == 1
    assert "not as NumPy has them" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ waves
def test_waves_conserve_energy(tmp_path: Path) -> None:
    said = run(tmp_path, "wave.py", "--size=24", "--steps=30", "--picture=picture.png")
    found = re.search(r"energy: (\S+) -> (\S+) ", said)
    assert found and found[1] == found[2] and float(found[1]) > 1
    plane = re.findall(r"\|([^|\n]+)\|\n", said.split("after 30 steps")[1])
    assert len(plane) == 24 and len(set(plane)) > 3  # the lens has bent what was flat
    assert drawn(tmp_path, said)


def test_other_walls_have_another_energy(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("wave")
    assert module.main(["--size=24", "--steps=40"]) == 0
    mirrors = replace(module.wave, sides=(resolve(sg.neumann, 2),))
    assert module.main(["--size=24", "--steps=40"], mirrors) == 1
    assert "energy was not conserved" in capsys.readouterr().out


def test_a_shot_has_a_record_and_conserves_energy(
    tmp_path: Path, example: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    said = run(tmp_path, "acoustic3d.py", "--size=12", "--steps=48", "--picture=picture.png")
    found = re.search(r"energy: (\S+) -> (\S+) ", said)
    assert found and found[1] == found[2] and float(found[1]) > 0.1
    heard = re.findall(r"\|([^|\n]+)\|\n", said)
    # the receivers hear the pulse later the farther away they are, and what they hear is the same on both sides
    assert heard[0].strip() and len(heard[0].strip()) < len(heard[-1].strip())
    assert drawn(tmp_path, said)
    module = example("acoustic3d")
    mirrors = replace(module.acoustic, sides=(resolve(sg.neumann, 3),))
    assert module.main(["--size=12", "--steps=60"], mirrors) == 1
    assert "energy was not conserved" in capsys.readouterr().out


def test_spots_spread_and_the_balance_holds(tmp_path: Path, example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    said = run(tmp_path, "gray_scott.py", "--size=40", "--steps=60", "--picture=picture.png")
    assert "on emulator: resident tiles=" in said and float(re.search(r"off by (\S+)\)", said)[1]) < 1e-12  # type: ignore[index]
    plane = re.findall(r"\|([^|\n]+)\|\n", said)
    assert len(plane) == 24 and len(set("".join(plane))) > 4
    assert drawn(tmp_path, said)
    module = example("gray_scott")
    held = replace(module.gray_scott, sides=(resolve(sg.dirichlet(0.0), 2),) * 2)
    assert module.main(["--size=40", "--steps=60"], held) == 1
    assert "the balance of the last step does not hold" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ an alloy
def test_an_alloy_comes_apart(tmp_path: Path) -> None:
    said = run(tmp_path, "cahn_hilliard.py", "--picture=picture.png")
    foretold = re.search(r"stripes begin ([\d.]+) cells apart", said)
    # The rate k^2 - k^4 is largest at k^2 = 1/2, on the grid a bit off it.
    assert foretold and float(foretold[1]) == pytest.approx(2 * np.pi * 2**0.5, rel=0.05)
    assert "the pure metals are stable" in said and "the mixture is unstable: growth 1.005 " in said
    energies = [float(value) for value in re.findall(r"energy: (.*)", said)[0].split()]
    assert len(energies) == 13 and energies == sorted(energies, reverse=True) and energies[-1] < 0.75 * energies[0]
    assert drawn(tmp_path, said)


def test_metal_that_leaves_and_metal_that_rests_are_found(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("cahn_hilliard")
    held = replace(module.alloy, sides=(resolve(sg.dirichlet(0.5), 2),))
    assert module.main(["--size=16", "--steps=120"], held) == 1
    assert "metal came or went" in capsys.readouterr().out
    assert module.main(["--size=16", "--steps=120"], sg.Stencil.from_weights([[1.0]])) == 1
    assert "the energy did not fall" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ back in time
def test_smoke_and_speeds_are_found(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    said = run(tmp_path, "invert.py", "--size=24", "--steps=18", "--picture=picture.png")
    found = re.findall(r"misfit of the (\w+): .*, (\d+) times smaller", said)
    assert [what for what, _ in found] == ["smoke", "speeds"] and all(int(times) >= 100 for _, times in found)
    assert drawn(tmp_path, said)


def test_the_wrong_way_back_finds_nothing(
    example: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also without torch, where the first part runs alone."""
    monkeypatch.setitem(sys.modules, "torch", None)
    module = example("invert")
    assert module.main(["--size=24"]) == 0
    assert capsys.readouterr().out.endswith("\nthe speeds of waves need torch (pip install 'sparsegen[torch]')\n")
    assert module.main(["--size=24"], lambda k: k) == 1
    assert "the smoke was not found" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ long runs
def test_a_movie_of_spots_goes_on(tmp_path: Path, example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--size=40", "--every=30", "--checkpoint=spots.npz"]
    said = run(tmp_path, "gray_scott_movie.py", *words, "--steps=60")
    covered = [float(share) for share in re.findall(r"spots cover ([\d.]+)%", said)]
    assert len(covered) == 2 and covered[1] > covered[0] > 5
    said = run(tmp_path, "gray_scott_movie.py", *words, "--steps=120", "--movie=spots.gif")
    assert re.findall(r"after (\d+) steps", said) == ["90", "120"]  # the others were done before
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert "no movie: pictures need matplotlib" in said
    else:
        assert (tmp_path / "spots.gif").read_bytes()[:3] == b"GIF"
    held = replace(example("gray_scott").gray_scott, sides=(resolve(sg.dirichlet(0.0), 2),) * 2)
    assert example("gray_scott_movie").main(["--size=12", "--steps=200"], held) == 1
    assert "the spots did not spread" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ regions
def test_a_plate_with_a_hole_and_a_hot_patch(tmp_path: Path) -> None:
    said = run(tmp_path, "hot_patch.py", "--size=16", "--steps=60", "--picture=picture.png")
    assert re.search(r"nothing hot: heat (\S+) -> \1 ", said)
    assert float(re.findall(r"off by (\S+) from erfc", said)[0]) < 3e-3
    assert re.search(r"^  \|@", said, re.MULTILINE) and drawn(tmp_path, said)


def test_a_plate_without_walls_is_found_out(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("hot_patch")

    def plate(u: Any, hole: sg.Mask, hot: sg.Mask) -> Any:
        walled = u.walled(hot, sg.dirichlet(1.0)).walled(hole, sg.dirichlet(0.0))
        return sg.solve(sg.Eq(u.dt, walled.laplace), u.next)

    plate.__annotations__["u"] = sg.Field(spacing=(1.0, 1.0), dt=module.DT)
    assert module.main(["--size=16", "--steps=20"], sg.stencil(boundary=sg.neumann)(plate)) == 1
    assert "heat was not conserved" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------ the Game of Life
def test_a_glider_goes_round(tmp_path: Path) -> None:
    said = run(tmp_path, "life.py", "--size=8", "--steps=32", "--picture=picture.png")
    assert "generations 0 to 4\n.#......" in said and "0 errors, 0 notes" in said
    assert re.findall(r"after (\d+) generations .*: True", said) == ["4", "32"]
    assert drawn(tmp_path, said)


def test_other_rules_have_no_glider(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def seeds(u: Any) -> Any:
        around = sum(u[dy, dx] for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0))
        return sg.where((around == 2) & (u[0, 0] == 0), 1, 0)

    assert example("life").main(["--size=8", "--steps=4"], sg.stencil(dtype="f32")(seeds)) == 1
    assert "False" in capsys.readouterr().out
