"""Compression ratios: the paper's figures, and formulas against real encodings."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegen.formats import ratio
from sparsegen.formats.ratio import counted, random_weights

PAPER = {
    "TCA-BME": [1.311, 1.508, 1.776, 2.160, 2.755],
    "CSR": [0.476, 0.556, 0.667, 0.833, 1.111],
    "Tiled-CSL": [0.714, 0.833, 1.000, 1.250, 1.666],
    "SparTA": [0.812, 0.984, 1.185, 1.396, 1.583],
}
"""Figure 3 of SpInfer: 28672 x 8192 at 30, 40, 50, 60, 70 %."""


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_figures(name: str) -> None:
    got = [ratio.ratio(name, 28672, 8192, s / 10) for s in range(3, 8)]
    assert got == pytest.approx(PAPER[name], abs=1.1e-3)  # the paper leaves CSR's row starts out


def test_break_even() -> None:
    """Where each format is as large as the dense matrix."""
    for name, s in (("TCA-BME", 1 / 16), ("CSR", 2 / 3), ("Tiled-CSL", 1 / 2)):
        assert ratio.ratio(name, 1 << 15, 1 << 15, s) == pytest.approx(1, abs=1e-3)


def test_ours_costs_two_percent_more_than_the_papers() -> None:
    for s in (0.4, 0.5, 0.6, 0.7):
        ours, theirs = (ratio.ratio(name, 28672, 8192, s) for name in ("bitmap", "TCA-BME"))
        assert 0.975 < ours / theirs < 1


@pytest.mark.parametrize("s", [0.0, 0.05, 0.5, 0.6, 0.9, 0.999])
def test_formulas_are_what_is_stored(s: float) -> None:
    """In a random matrix: within chance (and, for TCA-BME, what fills each group up, which its formula leaves out).

    Of MACKO's few values almost all are padding, whose number depends on where each row's last value is.
    """
    m, k = 1024, 2048
    for name, found in counted(random_weights(m, k, s, seed=3)).items():
        groups = m * k // 4096
        filled = groups * 16 if name == "TCA-BME" else 0
        said = 2 * m * k / ratio.ratio(name, m, k, s)
        chance = 0.04 if name == "MACKO" and s > 0.99 else 0.01
        assert said * (1 - chance) - 400 <= 2 * m * k / found <= said * (1 + chance) + 400 + filled, name


def test_the_papers_intensities() -> None:
    """Of 64 columns at 60 and 70 % zeros: operations a byte of the format, about 143 of which the H200 does."""
    real = [ratio.intensity(28672, 64, 1 / ratio.ratio("TCA-BME", 28672, 8192, s)) for s in (0.6, 0.7)]
    assert real == pytest.approx([138, 175], abs=0.7)
    assert ratio.intensity(28672, 64, 1.0) == pytest.approx(28672 * 64 / (28672 + 64))
    assert ratio.intensity(28672, 64, 0.4) > real[0]


def test_macko_pads_gaps_that_four_bits_do_not_hold() -> None:
    """Row by row: gaps of 1, 16 and 17 columns take no padding, none and one; one of 49 takes three."""
    kept = np.zeros((4, 80), bool)
    kept[0, [0, 16, 33]] = kept[1, 48] = kept[3, [15, 31]] = True
    assert ratio.macko_entries(kept) == 3 + 1 + 1 + 3 + 2
    entries = [ratio.macko_entries(random_weights(512, 1024, s / 10, seed=7) != 0) for s in range(3, 10)]
    said = [(2 * 512 * 1024 / ratio.ratio("MACKO", 512, 1024, s / 10) - 4 * 513) / 2.5 for s in range(3, 10)]
    assert entries == pytest.approx(said, rel=5e-3)
    assert entries[-1] > 1.2 * 0.1 * 512 * 1024  # at 90 % zeros a fifth and more of what is kept comes on top


def test_ours_on_a_matrix_that_does_not_divide() -> None:
    m, k = 1000, 777
    W = counted(random_weights(m, k - 1, 0.6))
    assert W["bitmap"] == pytest.approx(ratio.ratio("bitmap", m, k - 1, 0.6), rel=5e-3)
