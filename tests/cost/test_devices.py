"""Device profiles: shipped ones are complete; a missing, absurd or unknown figure is refused in clear words."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparsegen.cost.devices import PROFILES, RANGES, load_profile, names
from sparsegen.ir.errors import DeviceError


def test_shipped() -> None:
    assert names() == ["a100", "h100", "h200", "rtx3080", "rtx4090", "v100"]
    for name in names():
        d = load_profile(name)
        assert load_profile(name.upper()) is d
        assert load_profile(PROFILES / f"{name}.toml") == d
        assert hash(d) == hash(d) and d.clock > 1e8
    h200, a100 = load_profile("h200"), load_profile("a100")
    assert a100.tensor_cores == 432 and a100.bw_global == 1935e9 and a100.cpi["f64.m8n8k4"] == 16
    assert h200.bw_shared == pytest.approx(33e12, rel=0.02) and h200.compute_capability == (9, 0)
    rate = 2 * 16 * 8 * 4 * h200.tensor_cores * h200.clock / h200.cpi["f64.m16n8k4"]
    assert rate == pytest.approx(66.8e12, rel=0.01)
    assert load_profile("v100").explain_only and not any(s.startswith("f64") for s in load_profile("v100").cpi)
    for name in ("rtx4090", "rtx3080", "a100", "h100", "h200"):
        assert load_profile(name).cpi["f64.m8n8k4"] > 0


def test_every_mma_of_a_generation_has_its_cycles() -> None:
    """A family asks for the cycles of its own mma, on whatever device the product is priced for."""
    wanted = set(load_profile("h200").cpi)
    for name in set(names()) - {"v100"}:
        own = load_profile(name)
        lacks = wanted - set(own.cpi)
        assert all(own.compute_capability < (9, 0) and shape.startswith("f64.m16") for shape in lacks), (name, lacks)


def test_every_figure_has_its_source() -> None:
    for path in PROFILES.glob("*.toml"):
        lines = path.read_text(encoding="utf-8").splitlines()
        if "[measured]" in lines:  # written by calibrate: what follows tells of the measurement, not of the device
            lines = lines[: lines.index("[measured]")]
        whole_table = next(line for line in lines if line.startswith("[cpi]"))
        for line in lines:
            key = line.split(" = ")[0]
            if key in RANGES:
                assert "#" in line and "public" not in line, f"{path.name}: {line}"
            elif key.startswith('"'):
                assert "#" in line or "measured" in whole_table, f"{path.name}: {line}"


def write(folder: Path, edit: tuple[str, str]) -> Path:
    text = (PROFILES / "h200.toml").read_text(encoding="utf-8")
    assert edit[0] in text
    (folder / "mine.toml").write_text(text.replace(*edit, 1), encoding="utf-8")
    return folder / "mine.toml"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("sms = 132", ""), ["the figure sms is missing", "1 to 1024"]),
        (("popc_per_clk_sm = 15.96", ""), ["the figure popc_per_clk_sm is missing", "population counts a clock"]),
        (("sms = 132", "sms = 132.5"), ["sms = 132.5", "whole number"]),
        (("sms = 132", 'sms = "many"'), ["sms = 'many'", "no number"]),
        (("sms = 132", "sms = true"), ["sms = True", "no number"]),
        (("clock_mhz = 1978.0", "clock_mhz = 1980e6"), ["clock_mhz", "absurd", "200 to 5000 MHz"]),
        (("launch_s = 4.18e-06", "launch_s = nan"), ["launch_s = nan", "absurd"]),
        (("hbm_copy_gbs = 4072.0", "hbm_copy_gbs = -1"), ["hbm_copy_gbs = -1", "10 to 50000 GB/s"]),
        (('"f64.m8n8k4" = 16.0', '"f64.m8n8k4" = 0'), ["cpi.f64.m8n8k4 = 0", "absurd", "cycles"]),
        (("[cpi]", "[cycles]"), ["[cpi] is missing"]),
        (('cc = "9.0"', 'cc = "nine"'), ["cc = 'nine'"]),
        (('arch = "sm_90a"', 'arch = "sm_42"'), ["arch = 'sm_42'", "compute capability 9.0", 'arch = "sm_90"']),
        (('name = "NVIDIA H200"', ""), ["name is missing"]),
        (("smem_block = 232_448", "smem_block = 240_000"), ["smem_block = 240000", "smem_sm"]),
        (("lat_l2 = 287.4", "lat_l2 = 287.4\nlat_l3 = 500.0"), ["unknown figure 'lat_l3'", "did you mean 'lat_l"]),
        (("sms = 132", "sms = = 132"), ["is not TOML"]),
        (('arch = "sm_90a"', 'arch = "sm_90a"\nexplain_only = 1'), ["explain_only = 1"]),
    ],
)
def test_bad_figures(tmp_path: Path, edit: tuple[str, str], words: list[str]) -> None:
    path = write(tmp_path, edit)
    with pytest.raises(DeviceError) as e:
        load_profile(path)
    for word in [*words, "mine.toml"]:
        assert word in str(e.value)


def test_unknown_device(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="'h20'") as e:
        load_profile("h20")
    assert "did you mean 'h200'" in str(e.value) and "a100, h100, h200, rtx3080, rtx4090, v100" in str(e.value)
    with pytest.raises(DeviceError, match=r"cannot read .*none\.toml"):
        load_profile(str(tmp_path / "none.toml"))
    (tmp_path / "figures.json").write_text("{}")
    for path, what in ((tmp_path, "folder"), (tmp_path / "figures.json", "file")):
        with pytest.raises(DeviceError, match=f"is a {what}, but no .toml file"):
            load_profile(path)
