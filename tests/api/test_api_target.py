"""Which profile stands for which GPU, and what ``device`` and ``backend`` resolve to where one is present."""

from __future__ import annotations

import dataclasses

import pytest

import sparsegen as sg
from sparsegen import target
from sparsegen.backends.cuda.runtime import DeviceInfo
from sparsegen.cost.devices import load_profile, profile_from
from sparsegen.target import profile_of, resolve

H200 = DeviceInfo(0, "NVIDIA H200", (9, 0), 132, 62_914_560, 232_448, 233_472, 150 << 30, 1.98e9, 3.2e9, 6144)
A100 = dataclasses.replace(
    H200, name="NVIDIA A100-SXM4-80GB", capability=(8, 0), sm_count=108, shared_per_block=166_912
)
L4 = DeviceInfo(0, "NVIDIA L4", (8, 9), 58, 50_331_648, 101_376, 102_400, 24 << 30, 2.04e9, 6.25e9, 192)


def test_a_known_gpu_has_its_shipped_profile() -> None:
    assert profile_of(H200) == (load_profile("h200"), "")
    assert profile_of(A100) == (load_profile("a100"), "")


def test_a_gpu_of_a_known_name_but_another_chip_is_not_mistaken() -> None:
    profile, note = profile_of(dataclasses.replace(H200, capability=(10, 0)))
    assert profile.cc == "10.0" and profile.arch == "sm_100a" and note


def test_a_part_of_a_known_gpu_has_blocks_for_its_own_sms() -> None:
    """A slice is called after the whole, but blocks that run together have only its SMs."""
    part = dataclasses.replace(H200, name="NVIDIA H200 MIG 1g.18gb", sm_count=16)
    profile, note = profile_of(part)
    assert profile.sms == 16 and "driver's figures" in note
    heat = sg.Stencil.from_weights([[0.0, 0.1, 0.0], [0.1, 0.6, 0.1], [0.0, 0.1, 0.0]])
    k = sg.compile(heat, (64, 64), 1000, device=profile, backend="emulator", schedule="resident")
    assert k.schedule.tiles[0] * k.schedule.tiles[1] <= 16


def test_where_blocks_do_not_start_together_no_field_stays_on_chip() -> None:
    """As some drivers have it, or pycuda without the driver's bindings: another schedule is taken, with a word."""
    profile, note = profile_of(dataclasses.replace(H200, cooperative=False))
    assert profile == dataclasses.replace(load_profile("h200"), cooperative=False) and "resident" in note
    heat = sg.Stencil.from_weights([[0.0, 0.1, 0.0], [0.1, 0.6, 0.1], [0.0, 0.1, 0.0]])
    for what in (heat, heat.as_update()):
        words = {"backend": "emulator", "steps": 1000}
        assert sg.compile(what, (64, 64), device="h200", **words).schedule.family == "resident"
        assert sg.compile(what, (64, 64), device=profile, **words).schedule.family != "resident"
        with pytest.raises(sg.ScheduleError, match=r"(?s)at the same time here.*take tiled"):
            sg.compile(what, (64, 64), device=profile, schedule="resident", **words)


def test_an_unknown_gpu_gets_the_nearest_profile_with_its_own_figures() -> None:
    profile, note = profile_of(L4)
    assert (profile.name, profile.cc, profile.arch, profile.sms) == ("NVIDIA L4", "8.9", "sm_89", 58)
    assert profile.smem_block == 101_376 and profile.clock_mhz == pytest.approx(2040)
    assert 200 < profile.hbm_copy_gbs < 300  # 300 GB/s by its data sheet
    assert "RTX 4090" in note and not profile.explain_only
    fields = {f.name: getattr(profile, f.name) for f in dataclasses.fields(profile)}
    assert profile.link is not None  # what the nearest one has
    table = {**fields, "cpi": dict(fields.pop("cpi_table")), "link": dataclasses.asdict(profile.link)}
    of_what_runs = ("kept", "cooperative", "shares")  # no figures of the GPU
    table = {name: value for name, value in table.items() if name not in ("cpi_table", *of_what_runs)}
    assert profile_from(table, "L4") == profile  # every figure is sane


def test_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "gpu_info", lambda index=0: H200)
    here = resolve()
    assert (here.profile.name, here.backend, here.gpu, here.note) == ("NVIDIA H200", "cuda", 0, "")
    assert resolve("h200").backend == "cuda" and resolve("h200", "emulator").backend == "emulator"
    other = resolve("a100")
    assert other.backend == "emulator" and other.gpu is None and "not a NVIDIA A100" in other.note
    with pytest.raises(sg.DeviceError, match=r"does not run on this machine's NVIDIA H200"):
        resolve("a100", "cuda")


def test_the_launcher_is_forced_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("driver", "pycuda"):
        monkeypatch.setenv("SPARSEGEN_LAUNCHER", name)
        assert target.launcher() == name
