"""Every example runs as a user starts it, shows what it is there to show, and fails where that is not so."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench import report, stencils
from sparsegen.bench.stencil_run import Row, labels
from sparsegen.boundary import resolve

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(folder: Path, name: str, *words: str) -> str:
    """What an example prints when it is started in ``folder``; it must succeed."""
    command = [sys.executable, str(EXAMPLES / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports an example by its name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


def drawn(folder: Path, said: str) -> bool:
    """Whether the picture is there where matplotlib is, and else the line that says what to install."""
    file = folder / "picture.png"
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return "needs matplotlib" in said and not file.exists()
    return f"wrote {file}" in said and file.read_bytes()[1:4] == b"PNG"


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


# ------------------------------------------------------------------------------------------------ the memory table
def test_the_memory_table_is_the_papers(tmp_path: Path) -> None:
    said = run(tmp_path, "memory.py", "--picture=picture.png")
    rows = dict(re.findall(r"^(\S+D\S*P?) +\d +\S+ +\S+ +(-\S+%)", said, re.MULTILINE))
    assert rows == {"Heat-2D": "-70.0%", "Box-2D9P": "-83.3%", "Star-2D13P": "-86.5%", "Box-2D49P": "-96.4%"}
    # A tile of 32 x 64 outputs of 49 points has 38 rows of 8 groups of 7: 4256 of 100352 elements.
    assert re.search(r"^Box-2D49P .* -95\.8%$", said, re.MULTILINE)
    assert drawn(tmp_path, said)


def test_another_layout_is_not_the_papers(
    example: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("memory")
    assert module.main(["--size=64"]) == 0
    monkeypatch.setattr(module, "stencil2row_b", lambda k, groups, rows: module.stencil2row_a(k, 2 * groups, rows))
    assert module.main(["--size=64"]) == 1
    assert "not the formula's" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ a decoder layer
def test_a_pruned_layer_is_right_and_small(tmp_path: Path) -> None:
    said = run(tmp_path, "decoder_layer.py", "--hidden=96", "--past=5", "--sparsity=70", "--picture=picture.png")
    weights = re.search(r"weights: (\S+) MB dense, (\S+) MB sparse", said)
    assert weights and float(weights[1]) == pytest.approx(2 * 12 * 96**2 / 1e6, rel=5e-3)
    assert 2 < float(weights[1]) / float(weights[2]) < 3.2
    table = re.findall(r"^ +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +(\S+) +(\S+)$", said, re.MULTILINE)
    assert [int(row[0]) for row in table] == [1, 8, 16]
    for _, dense, sparse, faster, *errors in table:
        assert float(dense) / float(sparse) == pytest.approx(float(faster), rel=0.02)
        assert all(1e-5 < float(error) < 2e-3 for error in errors)
    parts = re.findall(r"(dense|sparse), \d+ +qkv ([\d.]+), out ([\d.]+), fc1 ([\d.]+), fc2 ([\d.]+)", said)
    assert len(parts) == 6
    assert sum(map(float, parts[0][1:])) == pytest.approx(float(table[0][1]), abs=0.2)
    assert drawn(tmp_path, said)


def test_other_weights_make_another_layer(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def halves(w: Any) -> Any:
        return sg.sparse(np.where(np.arange(w.shape[1]) % 8 > 0, w, w.dtype.type(0)))

    assert example("decoder_layer").main(["--hidden=64"], halves) == 1
    assert "the sparse layer is wrong" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ all shapes
def test_shapes_says_how_to_measure(tmp_path: Path) -> None:
    said = run(tmp_path, "shapes.py", "--from=nothing.json")
    assert "nothing was measured yet" in said and "sparsegen bench --suite stencil" in said


def test_shapes_shows_what_was_measured(tmp_path: Path) -> None:
    head = dict.fromkeys(("device", "driver", "nvcc", "python", "sparsegen", "commit", "sources"), "X")
    head |= {"dirty": False, "date": "2026-11-20", "seconds": 0.1, "cold": False, "seed": 1, "tolerance": {}}
    rows = [
        replace(Row(**labels(stencils.case(form, "targets"), "direct")), gs_per_s=2.0 * form.least, floor=form.least)
        for form in stencils.FORMS
    ]
    rows[2] = replace(rows[2], gs_per_s=None, failed="out of memory")
    rows[3] = replace(rows[3], floor=None)
    report.save(report.result("stencil", rows, head), tmp_path / "found.json")
    said = run(tmp_path, "shapes.py", "--from=found.json", "--picture=picture.png")
    table = {line.split()[0]: line.split() for line in said.splitlines() if re.match(r"\S+D\S*  ", line)}
    assert list(table) == [form.name for form in stencils.FORMS]
    assert table["Heat-1D"][1:6] == ["9000", "4500", "1108", "2.00", f"{9000 / 1108:.2f}"]
    assert table["Heat-2D"][1] == "–" and table["Box-2D9P"][2:5:2] == ["–", "–"]
    assert drawn(tmp_path, said)


def test_layouts_of_nmsparse_have_no_conflicts(tmp_path: Path) -> None:
    said = run(tmp_path, "nmsparse_ablation.py", "--seed=3")
    table = {
        int(m): [float(x) for x in rest.split()] for m, rest in re.findall(r"^ *(\d+) +([\d. ]+)$", said, re.MULTILINE)
    }
    assert list(table) == [4, 8, 10, 16, 24, 32, 48, 64]
    for m, (plain, turned, shared) in table.items():
        assert turned == 1 and (shared == 1) == (m <= 32) and plain > 1.5
    kernels = re.findall(r"M = (\d+): ([\d.]+) wavefronts a read with x as it is, ([\d.]+) by offsets", said)
    assert [int(m) for m, _, _ in kernels] == list(table)
    assert all(float(turned) == 1 and float(plain) > 1 for _, plain, turned in kernels)


def test_the_order_of_vectors_saves_conflicts(tmp_path: Path) -> None:
    """What the order should take is what kernels that read strips take; words that are changed keep the products."""
    said = run(tmp_path, "magicube_ablation.py", "--rows=64", "--columns=400", "--n=64")
    table = {int(m): (float(a), b) for m, a, b in re.findall(r"^ +(\d+)% +([\d.]+) +([\d.]+)$", said, re.MULTILINE)}
    assert list(table) == [70, 90, 98] and all(plain > float(ours) >= 1 for plain, ours in table.values())
    blocks = re.split(r"columns, (\d+)% zeros", said)[1:]
    for zeros, block in zip(blocks[::2], blocks[1::2], strict=True):
        lines = re.findall(
            r"^ *(\S+) +([\d.]+) +[\d.]+ +(\d+) +([\d.]+) .*(vector_\w+)", block.partition("types")[0], re.MULTILINE
        )
        assert {passes for _, passes, *_, family in lines if family == "vector_strip"} == {table[int(zeros)][1]}
        assert {passes for _, passes, *_, family in lines if family == "vector_gather"} == {"1.00"}
        assert len({mma for _, _, mma, *_ in lines}) == 1 and len(lines) >= 8
    types = dict(re.findall(r"^(L\d+-R\d+) +[\d.]+ +[\d.]+ +(\d+)", said, re.MULTILINE))
    assert [int(n) // int(types["L8-R8"]) for n in types.values()] == [1, 2, 4, 1, 1]
    ideas = re.findall(
        r"^  pad=(\w+)(?: shuffle=(\w+))? prefetch=(\w+) +([\d.]+) +([\d.]+) +([\d.]+)", said, re.MULTILINE
    )
    for pad, shuffle, _, passes, bits, _ in ideas:
        assert passes == {"on": "1.00", "off": "4.00"}[pad] and bits == {"": "0.0", "on": "4.0", "off": "22.0"}[shuffle]
    assert len(ideas) == 7 and float(ideas[2][5]) < float(ideas[1][5]) and float(ideas[6][5]) < float(ideas[5][5])


def test_spinfers_ideas_one_by_one(tmp_path: Path) -> None:
    """Two counts of a bitmap for three, one load for four of x, a barrier for two; and none of them costs time."""
    said = run(tmp_path, "spinfer_ablation.py", "--rows=256", "--columns=256")
    formats = dict(re.findall(r"^  (\S+(?: bits)?) +[\d.]+ MB +([\d.]+) ", said, re.MULTILINE))
    assert list(formats)[-2:] == ["free bits", "dense"] and float(formats["TCA-BME"]) > float(formats["bitmap"]) > 2
    found = re.findall(r"^  (?:plain|\+ .*?) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) ", said, re.MULTILINE)
    popc, loads, waits, barriers, times = zip(*([float(x) for x in line] for line in found), strict=True)
    assert popc == (2.94, *[1.94] * 5) and loads[0] - loads[2] == 3.5
    assert waits[:5] == (1, 1, 1, 1.25, 2.5) and barriers[:5] == (2, 2, 2, 1.25, 2.5)
    assert list(times) == sorted(times, reverse=True)


# ------------------------------------------------------------------------------------------------ reordering
def test_shuffled_clusters_are_found_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARSEGEN_DATA", raising=False)
    said = run(tmp_path, "reorder.py", "--rows=512", "--picture=picture.png")
    table = dict(re.findall(r"^(\w+) +512x512 .* (yes|no)$", said, re.MULTILINE))
    assert table["clustered"] == "yes" and table["uniform"] == "no"
    before, after = (re.findall(r"\|([^|\n]+)\|\n", part) for part in said.split("clustered, ")[1:])
    assert not {*"#%@"} & set("".join(before)) and {*"#%"} & set("".join(after))
    assert drawn(tmp_path, said)


def test_patterns_of_a_folder_are_reordered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy.sparse")
    (tmp_path / "p.smtx").write_text("4, 6, 5\n0 2 2 3 5\n1 5 0 2 3\n")
    monkeypatch.setenv("SPARSEGEN_DATA", str(tmp_path))
    assert re.search(r"^p +4x6 +5 +", run(tmp_path, "reorder.py", "--rows=512"), re.MULTILINE)


def test_layers_of_a_graph_are_what_scipy_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a generated graph, and of a file that is named as the one that is looked for."""
    pytest.importorskip("scipy.sparse")
    monkeypatch.delenv("SPARSEGEN_DATA", raising=False)
    said = run(tmp_path, "graph_features.py", "--nodes=100", "--features=24")
    assert "power law: 100 nodes" in said
    assert re.findall(r"^\d +(\d+) +csr", said, re.MULTILINE) == ["12", "16"]
    (tmp_path / "cora.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n9 9 3\n1 2\n9 1\n4 4\n")
    monkeypatch.setenv("SPARSEGEN_DATA", str(tmp_path))
    assert "cora: 9 nodes, 13 elements" in run(tmp_path, "graph_features.py")


def test_a_wrong_layer_of_a_graph_is_said(
    example: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy.sparse")
    monkeypatch.delenv("SPARSEGEN_DATA", raising=False)
    module, product = example("graph_features"), sg.spmm
    monkeypatch.setattr(module.sg, "spmm", lambda w, n, activation: product(w, n=n))  # without the relu
    assert module.main(["--nodes=50"]) == 1
    assert "wrong: off by" in capsys.readouterr().err


def test_rows_that_stay_are_no_clusters(
    example: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPARSEGEN_DATA", raising=False)
    module, reorder = example("reorder"), sg.reorder
    monkeypatch.setattr(module.sg, "reorder", lambda a, tile: reorder(a, "none", tile=tile))
    assert module.main(["--rows=256"]) == 1
    assert "the clusters were not found" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ a Transformer
TRANSFORMER = "--accuracy --layers=2 --zeros 0.5 --length=64 --train-heads=1 --train-batch=16 --tests=32".split()


def test_a_transformer_keeps_its_answers_in_integers(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "found.json"
    assert example("sparse_transformer").main([*TRANSFORMER, "--steps=150", "--json", str(file)]) == 0
    dense, sparse = json.loads(file.read_text())["accuracy"]
    assert dense["float"] > 0.9 and sparse["float"] > 0.5 and sparse["zeros"] == 0.5
    off = sparse["off"]
    assert 0 < off["16b-8b"] <= off["8b-8b"] < 0.03 < off["8b-4b"] < 0.5
    said = capsys.readouterr().out
    for name in ("16b-8b", "8b-8b", "8b-4b"):
        assert f"{sparse[name]:.1%} ({off[name]:.1%})" in said
    assert re.search(rf"^dense +{dense['float']:.1%} ", said, re.MULTILINE)


def test_other_keys_have_other_answers(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    module, quantised = example("sparse_transformer"), example("_transformer").quantised

    def inverted(seen: Any, *sizes: int, **bits: int) -> Any:
        return quantised(~seen, *sizes, **bits)

    assert module.main([*TRANSFORMER, "--steps=40"], inverted) == 1
    assert "8b-8b is wrong: scores" in capsys.readouterr().out


def test_masks_have_the_zeros_that_they_should(example: Any) -> None:
    module = example("sparse_transformer")
    for length, zeros in ((256, 0.95), (1000, 0.9), (512, 0.5)):
        seen = module.mask(length, zeros, 1)
        assert seen.shape == (length, length) and seen.diagonal().all()
        assert 1 - seen.mean() == pytest.approx(zeros, abs=1 / length)
        assert (seen == sg.pattern.vectors(seen, 8)).all() and (seen != module.mask(length, zeros, 2)).any()


def test_a_transformer_is_told_as_it_was_measured(example: Any) -> None:
    """docs/attention.md has the tables of docs/transformer.json."""
    module, docs = example("sparse_transformer"), Path(__file__).parents[2] / "docs"
    found, said = json.loads((docs / "transformer.json").read_text()), (docs / "attention.md").read_text()
    assert not module.problems(found)
    assert module.told_accuracy(found["accuracy"]) in said and module.told_latency(found["latency"]) in said


def test_a_transformer_needs_torch(
    example: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert example("sparse_transformer").main([]) == 0
    assert capsys.readouterr().out == "this example needs torch (pip install 'sparsegen[torch]')\n"


# ------------------------------------------------------------------------------------------------ a whole model
def test_a_whole_model(tmp_path: Path) -> None:
    """Its report, its folder, its tokens."""
    pytest.importorskip("safetensors.torch")
    said = run(tmp_path, "whole_model.py", "--layers=1", "--batch=2", "--tokens=3")
    assert "of 9 layers are sparse" in said and "a rule says so" in said and " error " in said
    assert re.search(r"saved and loaded: [\d.]+ MB, the same", said)
    assert re.search(r"3 tokens from each of 2 prompts; the first: \[\d+, \d+, \d+\]", said)
    off = re.search(r"scores are off by (\S+), (\d+)% of the tokens are its", said)
    assert off and float(off[1]) < 2e-3 and int(off[2]) > 60


def test_another_model_is_found_out(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("safetensors.torch")
    import sparsegen.torch as st

    def spoilt(model: Any, **words: Any) -> Any:
        report = st.sparsify(model, **words)
        model.body.layers[0].input_layernorm.weight[::2] = 0
        return report

    assert example("whole_model").main(["--layers=1", "--tokens=2"], spoilt) == 1
    assert "the sparse model is wrong" in capsys.readouterr().out
