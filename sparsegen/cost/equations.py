"""ConvStencil's performance model, equation by equation (numbers as in the paper, section 3).

The grid has m x n points of f64, the stencil k x k weights; seconds, bytes and Hz.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

ITEM = 8  #: bytes of an f64


class Method(NamedTuple):
    """What one step does on a grid with a method of the paper; ``shared``: bytes through shared memory."""

    mma: float  #: f64.m8n8k4 instructions
    grid: float  #: data_R and data_W, section 3.2: the grid is read once and written once (both are implicit)
    written: float  #: data_transW: the transformed matrix
    read: float  #: data_transR: fragments of it

    def compute_time(self, device: DeviceProfile) -> float:
        """Eqs. (3), (14) and (15): T_compute = mma · CPI / (f · N_tcu)."""
        return self.mma * device.cpi["f64.m8n8k4"] / (device.clock * device.tensor_cores)

    def memory_time(self, device: DeviceProfile) -> float:
        """Eq. (4): T_memory = max((data_R + data_W) / bw_G, (data_transW + data_transR) / bw_S)."""
        return max(self.grid / device.bw_global, (self.written + self.read) / device.bw_shared)

    def time(self, device: DeviceProfile) -> float:
        """Eq. (2): T = max(T_compute, T_memory)."""
        return max(self.compute_time(device), self.memory_time(device))


def convstencil(k: int, shape: tuple[int, int], padded: bool = True) -> Method:
    """Dual tessellation; without ``padded`` the depth k² is not rounded up to whole mma.

    Eq. (13): N_MMA = 2mn / (8(k+1)) · ⌈k²/4⌉; each loads a fragment of 8 x 4 (weights stay in registers).
    """
    points = math.prod(shape)
    mma = 2 * points / (8 * (k + 1)) * (math.ceil(k**2 / 4) if padded else k**2 / 4)
    return Method(mma, 2 * points * ITEM, stored(k) * points * ITEM, mma * 32 * ITEM)


def gemm(k: int, shape: tuple[int, int]) -> Method:
    """GEMM-based convolution, section 3.3: k²·mn/32 products (one column in eight of each in use) of the im2row matrix,
    of k² elements a point, each written and read once."""
    points = math.prod(shape)
    return Method(k**2 * points / 32, 2 * points * ITEM, k**2 * points * ITEM, k**2 * points * ITEM)


def stored(k: int) -> float:
    """Eqs. (7) to (10): elements of A and B a point, 2k / (k+1)."""
    return 2 * k / (k + 1)


def memory_saving(k: int, stencil_points: int) -> float:
    """Table 3, section 3.2: what A and B save of im2row's memory, whose elements a point are the stencil's, 0 to 1."""
    return 1.0 - stored(k) / stencil_points
