"""The records of what was tuned: whole or absent, whoever writes and whatever lies there, and never too many."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparsegen.cli import main
from sparsegen.tuning import store
from sparsegen.tuning.store import Record, Trial

PROBLEM = {
    "what": "stencil",
    "of": "5-point star f64",
    "shape": [64, 64],
    "steps": 3,
    "device": {"name": "NVIDIA H200"},
}
TRIALS = (Trial("direct", 2e-6, 3e-6, 0.1), Trial("tiled fuse=2", 3e-6, None, None, "too many registers"))


def record(measured: float = 3e-6, **more: Any) -> Record:
    return Record({**PROBLEM, **more}, "direct", measured, 2e-6, "2026-01-01T00:00:00Z", 12, TRIALS)


def test_what_is_remembered_comes_back(cache: Path) -> None:
    assert store.recall(PROBLEM) is None
    assert store.remember(record()) and store.recall(PROBLEM) == record()
    store.remember(record(4e-6))
    assert store.recall(PROBLEM) == record(4e-6) and len(list(store.records())) == 1
    assert store.recall({**PROBLEM, "steps": 4}) is None
    assert [p.name for p in (cache / "tuned").iterdir()] == [store.path_of(PROBLEM).name]


def spoilt() -> dict[str, bytes]:
    store.remember(record())
    good = json.loads(store.path_of(PROBLEM).read_bytes())
    record_ = good["record"]

    def signed(**more: Any) -> dict[str, Any]:
        return {**good, "record": {**record_, **more}, "digest": store.key({**record_, **more})}

    changed = {
        "another format": {**good, "format": store.FORMAT + 1},
        "of another problem": signed(problem={**PROBLEM, "steps": 9}),
        "a field too many": signed(colour=1),
        "a field too few": {**good, "record": {k: v for k, v in record_.items() if k != "date"}},
        "no format": {k: v for k, v in good.items() if k != "format"},
        "a time that is none": {**good, "record": {**record_, "measured": "fast"}},
        "no schedule": {**good, "record": {**record_, "schedule": None}},
        "a trial that is none": signed(trials=[3]),
        "a list": [good],
    }
    whole = json.dumps(good).encode()
    raw = {"empty": b"", "cut": whole[:-20], "binary": bytes(range(256)), "a number": b"3", "deep": b"[" * 100_000}
    return {name: json.dumps(value).encode() for name, value in changed.items()} | raw


def test_what_cannot_be_read_counts_as_absent(cache: Path) -> None:
    for name, data in spoilt().items():
        store.path_of(PROBLEM).write_bytes(data)
        assert store.recall(PROBLEM) is None, name
        assert store.remember(record()) and store.recall(PROBLEM) == record(), name
    store.path_of(PROBLEM).unlink()
    store.path_of(PROBLEM).mkdir()
    assert store.recall(PROBLEM) is None
    with pytest.warns(RuntimeWarning, match="measured anew"):
        assert not store.remember(record())


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("SPARSEGEN_CACHE_DIR", str(file))
    with pytest.warns(RuntimeWarning, match="SPARSEGEN_CACHE_DIR"):
        assert not store.remember(record())
    assert store.recall(PROBLEM) is None and store.clear() == 0


def test_the_longest_unused_go_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LIMIT", 3)
    for steps in range(3):
        store.remember(record(steps=steps))
        os.utime(store.path_of({**PROBLEM, "steps": steps}), (1000 + steps, 1000 + steps))
    assert store.recall({**PROBLEM, "steps": 0})  # asked for: now the newest
    leftover = cache / "tuned" / ".tmp-dead"
    leftover.write_text("half")
    os.utime(leftover, (0, 0))
    for steps in (3, 4):
        store.remember(record(steps=steps))
    assert sorted(r.problem["steps"] for r in store.records()) == [0, 3, 4]
    assert not leftover.exists() and len(list((cache / "tuned").iterdir())) == 3


def write(folder: str, number: int, rounds: int) -> int:
    """In a process of its own: write and read the same record; how often what was read was not whole."""
    os.environ["SPARSEGEN_CACHE_DIR"] = folder
    torn = 0
    for i in range(rounds):
        store.remember(record(1.0 + number * rounds + i))
        found = store.recall(PROBLEM)
        torn += found is None or replace(found, measured=3e-6) != record()
    return torn


def test_processes_that_write_the_same_record(cache: Path) -> None:
    rounds = 60
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.starmap(write, [(str(cache), n, rounds) for n in range(3)]) == [0, 0, 0]
    found = store.recall(PROBLEM)
    assert found is not None and found.measured in {1.0 + rounds * n + rounds - 1 for n in range(3)}
    assert len(list((cache / "tuned").iterdir())) == 1


def test_the_command_line_lists_and_clears_them(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.remember(record())
    assert main(["cache", "info"]) == 0
    said = capsys.readouterr().out
    assert (
        "1 tuned schedules" in said
        and "5-point star f64 on 64x64, steps=3 on NVIDIA H200: direct; 3 µs, predicted 2 µs" in said
    )
    assert main(["cache", "clear"]) == 0
    assert "1 tuned" in capsys.readouterr().out and store.recall(PROBLEM) is None


def test_clear_deletes_nothing_where_a_link_leads(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.json").write_text("mine")
    (cache / "tuned").symlink_to(tmp_path / "mine", target_is_directory=True)
    assert store.clear() == 0 and (tmp_path / "mine" / "notes.json").read_text() == "mine"
    (cache / "tuned").unlink()
    store.remember(record())
    store.path_of(PROBLEM).unlink()
    os.mkfifo(store.path_of(PROBLEM))
    assert store.recall(PROBLEM) is None
