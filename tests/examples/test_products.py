"""Examples of products, as a user starts them: they show what they are for, and fail where it is not so."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsegen as sg
from sparsegen.bench import report, stencils
from sparsegen.bench.stencil_run import Row, labels
from tests.examples.kit import drawn, run


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
