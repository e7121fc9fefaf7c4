"""Generated sparse products timed on one H200 (CUDA 13), f16, uniform masks: what their cost model was fitted to.

Microseconds with a cold L2 (256 MB read before each launch).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timed:
    """One kernel: W [m, k] with a share of zeros, n columns."""

    m: int
    k: int
    n: int
    sparsity: float
    microseconds: float
    schedule: str


#: m, k, n, per cent of zeros; then microseconds, mma, columns, warps, rows, stages, splits.
_TIMES = """
4096 4096 16 60
  13.3 mma 16 1x16 2 2 1
  13.5 mma 16 1x16 2 3 1
  13.6 mma 16 1x12 2 2 1
  14.1 mma 16 1x8 4 3 4
  14.3 mma 16 1x16 2 4 1
  14.4 mma 16 1x8 2 4 1
  14.4 mma 16 2x8 1 2 1
  14.5 mma 16 1x16 4 2 2
  14.5 mma 16 1x16 4 3 2
  14.5 mma 16 2x8 4 3 4
  15.1 mma 16 1x8 2 4 2
  15.3 mma 16 1x4 2 4 4
  15.4 mma 16 2x4 2 4 4
  15.5 mma 16 2x8 2 4 2
  15.6 mma 16 4x4 2 4 4
8192 8192 16 60
  30.1 mma 16 1x16 4 2 1
  30.8 mma 16 1x16 4 3 1
  31.2 mma 16 2x8 4 2 2
  32.4 mma 16 2x10 2 2 1
  32.4 mma 16 1x8 4 3 2
  33.1 mma 16 2x8 4 3 2
  33.4 mma 16 1x4 4 3 4
  33.4 mma 16 1x8 4 4 1
  33.6 mma 16 2x8 2 2 1
  33.6 mma 16 2x8 7 2 3
  33.7 mma 16 2x4 4 3 4
  34.0 mma 16 4x4 4 3 4
  34.6 mma 16 8x2 4 3 8
  35.3 mma 16 2x2 4 3 8
  35.5 mma 16 4x2 4 3 8
21504 7168 16 60
  59.5 mma 16 2x8 6 2 1
  60.8 mma 16 3x5 7 2 2
  61.2 mma 16 1x8 11 2 1
  62.9 mma 16 4x4 6 2 2
  63.5 mma 16 7x2 6 2 4
  64.1 mma 16 3x5 4 2 1
  64.3 mma 16 1x5 7 2 2
  65.3 mma 16 3x5 4 3 1
  66.0 mma 16 3x2 5 2 4
  66.1 mma 16 4x4 3 2 1
  68.1 mma 16 4x5 3 2 1
  68.5 mma 16 5x4 3 2 1
  68.8 mma 16 7x1 6 2 8
  69.1 mma 16 7x3 3 3 2
  70.3 mma 16 6x1 5 2 8
  70.4 mma 16 7x1 4 2 8
  72.5 mma 16 1x4 3 2 2
28672 8192 1 60
  73.2 none 1 2x8 7 2 1
  78.5 none 1 4x1 4 2 8
  84.3 mma 8 7x3 4 2 2
  84.4 none 1 2x2 3 2 3
  89.1 mma 8 1x4 4 2 2
  90.0 mma 8 4x1 4 2 8
  90.4 mma 8 2x2 4 2 4
  92.0 none 1 1x4 4 2 2
28672 8192 4 60
  73.0 mma 8 2x8 7 2 1
28672 8192 8 60
  72.5 mma 8 2x8 7 2 1
  75.6 mma 8 5x4 3 2 1
  78.9 mma 8 7x4 2 2 1
  81.4 mma 8 3x6 5 2 1
  81.9 mma 8 5x5 3 2 1
  82.6 mma 8 7x3 4 2 2
  83.3 mma 8 4x6 4 2 1
  83.3 mma 8 7x1 4 2 8
  83.7 mma 8 1x4 5 2 4
  84.1 mma 8 2x2 5 2 8
  84.2 mma 8 7x2 8 2 4
  84.7 mma 8 3x7 5 2 1
  88.2 mma 8 4x1 4 2 8
  89.5 mma 8 2x2 4 2 4
  90.9 mma 8 1x4 4 2 2
28672 8192 16 50
  90.4 mma 16 2x6 7 2 1
  91.2 mma 16 3x5 5 2 1
  91.9 mma 16 5x4 3 2 1
  95.3 mma 16 3x6 5 2 1
  97.1 mma 16 3x3 5 2 2
  99.0 mma 16 6x3 5 2 2
  100.2 mma 16 3x2 5 2 3
  102.3 mma 16 1x4 4 2 2
  103.5 mma 16 2x2 4 2 4
  107.0 mma 16 4x1 4 2 8
  110.4 mma 16 7x1 4 2 6
  117.9 mma 16 7x1 4 2 8
28672 8192 16 60
  81.8 mma 16 2x8 7 2 1
  87.4 mma 16 3x5 5 2 1
  88.2 mma 16 5x4 3 2 1
  89.1 mma 16 3x6 5 2 1
  91.3 mma 16 7x2 8 2 4
  92.5 mma 16 6x3 5 2 2
  95.5 mma 16 1x4 4 2 2
  96.2 mma 16 2x2 4 2 4
  100.1 mma 16 4x1 4 2 8
  101.3 mma 16 1x7 5 2 1
  105.3 mma 16 7x3 2 3 1
  106.4 mma 16 7x1 4 2 6
  108.4 mma 16 7x1 4 2 8
28672 8192 16 70
  78.1 mma 16 2x8 7 2 1
  80.1 mma 16 1x8 7 2 1
  80.4 mma 16 4x4 7 2 2
  81.5 mma 16 8x2 7 2 4
  82.9 mma 16 2x4 7 2 2
  84.6 mma 16 1x4 7 2 2
  86.4 mma 16 5x4 3 2 1
  89.4 mma 16 8x1 7 2 8
  93.9 mma 16 3x3 7 2 3
  97.1 mma 16 2x3 7 2 3
28672 8192 32 60
  105.7 mma 32 3x4 5 3 1
  108.6 mma 32 3x4 5 2 1
  115.6 mma 32 3x2 5 3 2
  117.5 mma 32 6x2 5 3 2
  119.5 mma 32 6x1 5 3 4
  123.6 mma 32 7x2 4 3 2
  124.0 mma 32 1x4 4 3 2
  124.1 mma 32 7x1 4 3 4
  127.0 mma 32 5x3 3 2 1
  129.7 mma 32 2x2 4 3 4
  132.2 mma 32 1x5 7 3 1
  143.4 mma 32 7x2 2 2 1
28672 8192 64 60
  204.5 mma 32 3x4 5 2 1
28672 8192 128 60
  400.2 mma 32 3x4 5 2 1
"""


def _read() -> list[Timed]:
    out: list[Timed] = []
    m = k = n = percent = 0
    for line in _TIMES.strip("\n").split("\n"):
        if not line.startswith(" "):
            m, k, n, percent = map(int, line.split())
            continue
        time, mma, cols, warps, rows, stages, splits = line.split()
        shape = "none" if mma == "none" else "f16.m16n8k16"
        text = f"bitmap mma={shape} cols={cols} warps={warps} rows={rows} stages={stages} splits={splits}"
        out.append(Timed(m, k, n, percent / 100, float(time), text))
    return out


TIMES = _read()
