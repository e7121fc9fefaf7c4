"""ConvStencil's performance model as sympy, equation by equation (numbers as in the paper, section 3).

Symbols: ``k`` edge of the stencil, ``m`` × ``n`` the grid, ``f`` clock, ``N_tcu`` tensor cores, ``CPI`` cycles per mma,
``bw_G`` and ``bw_S`` bandwidth of global and shared memory.  All in seconds, bytes and Hz; elements are f64, 8 bytes.
sympy is imported when a function is first called.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile

Expr = Any  #: a sympy expression; sympy has no types
ITEM = 8  #: bytes of an f64


@cache
def symbol(name: str) -> Expr:
    """The positive symbol of that name, the same one everywhere."""
    import sympy

    return sympy.Symbol(name, positive=True)


def total_time(t_compute: Expr | None = None, t_memory: Expr | None = None) -> Expr:
    """Eq. (2), section 3.1: T = max(T_compute, T_memory)."""
    import sympy

    return sympy.Max(
        symbol("T_compute") if t_compute is None else t_compute, symbol("T_memory") if t_memory is None else t_memory
    )


def compute_time(counts: dict[str, Expr]) -> Expr:
    """Eq. (3), section 3.1: T_compute = Σ k_i · CPI_i / (f · N_tcu); counts is {mma shape: how many}."""
    work = sum(count * symbol("CPI" if len(counts) == 1 else f"CPI_{shape}") for shape, count in counts.items())
    return work / (symbol("f") * symbol("N_tcu"))


def memory_time(
    data_r: Expr | None = None, data_w: Expr | None = None, trans_w: Expr | None = None, trans_r: Expr | None = None
) -> Expr:
    """Eq. (4), section 3.1: T_memory = max((data_R + data_W) / bw_G, (data_transW + data_transR) / bw_S)."""
    import sympy

    given = {"data_R": data_r, "data_W": data_w, "data_transW": trans_w, "data_transR": trans_r}
    r, w, tw, tr = (symbol(name) if e is None else e for name, e in given.items())
    return sympy.Max(r / symbol("bw_G") + w / symbol("bw_G"), tw / symbol("bw_S") + tr / symbol("bw_S"))


def points() -> Expr:
    """m · n, the points of the grid."""
    return symbol("m") * symbol("n")


def data_read() -> Expr:
    """data_R, section 3.2: the grid is read once (both methods are implicit), bytes."""
    return points() * ITEM


def data_write() -> Expr:
    """data_W, section 3.2: the grid is written once, bytes."""
    return points() * ITEM


def n_mma(padded: bool = True) -> Expr:
    """Eq. (13), section 3.3: N_MMA = 2mn / (8(k+1)) · ⌈k²/4⌉; without ``padded`` the ceiling is left out."""
    import sympy

    k = symbol("k")
    return 2 * points() / (8 * (k + 1)) * (sympy.ceiling(k**2 / 4) if padded else k**2 / 4)


def n_mma_gemm() -> Expr:
    """Section 3.3, GEMM-based convolution: k²·mn/32 products, one column in eight of each in use."""
    return symbol("k") ** 2 * points() / 32


def convstencil_compute_time() -> Expr:
    """Eq. (14), section 3.3: N_MMA · CPI / (f · N_tcu)."""
    return compute_time({"f64.m8n8k4": n_mma()})


def gemm_compute_time() -> Expr:
    """Eq. (15), section 3.3: the same for GEMM-based convolution."""
    return compute_time({"f64.m8n8k4": n_mma_gemm()})


def convstencil_trans_write() -> Expr:
    """data_transW, sections 3.2 and 3.3: A and B hold 2k/(k+1) elements a point, written once, bytes."""
    k = symbol("k")
    return 2 * k / (k + 1) * points() * ITEM


def convstencil_trans_read(padded: bool = True) -> Expr:
    """data_transR, section 3.3: each mma loads an 8 × 4 fragment (weights stay in registers), bytes."""
    return n_mma(padded) * 32 * ITEM


def gemm_trans_write() -> Expr:
    """data_transW of GEMM-based convolution, section 3.3: the im2row matrix, k² elements a point, bytes."""
    return symbol("k") ** 2 * points() * ITEM


def gemm_trans_read() -> Expr:
    """data_transR of GEMM-based convolution, section 3.3: each element of the im2row matrix is read once, bytes."""
    return symbol("k") ** 2 * points() * ITEM


def convstencil_time() -> Expr:
    """Eq. (2) with eqs. (4), (13) and (14): ConvStencil's time."""
    return total_time(
        convstencil_compute_time(),
        memory_time(data_read(), data_write(), convstencil_trans_write(), convstencil_trans_read()),
    )


def gemm_time() -> Expr:
    """Eq. (2) with eqs. (4) and (15): the time of GEMM-based convolution."""
    return total_time(
        gemm_compute_time(), memory_time(data_read(), data_write(), gemm_trans_write(), gemm_trans_read())
    )


def memory_factor_stencil2row() -> Expr:
    """Table 3, section 3.2, from eqs. (7) to (10): elements of A and B per point, 2k/(k+1)."""
    return 2 * symbol("k") / (symbol("k") + 1)


def memory_factor_im2row() -> Expr:
    """Table 3, section 3.2: elements of im2row per point: the points of the stencil (k² for a box)."""
    return symbol("p")


def memory_saving(k: int, stencil_points: int) -> float:
    """Table 3, section 3.2: what stencil2row saves of im2row's memory, 0 to 1."""
    return 1.0 - (2 * k / (k + 1)) / stencil_points


def evaluate(expr: Expr, device: DeviceProfile, k: int, shape: tuple[int, int], mma: str = "f64.m8n8k4") -> float:
    """The number that an equation gives on a device, for a k × k stencil on a grid of that shape."""
    values: dict[str, float] = {
        "k": k,
        "m": shape[0],
        "n": shape[1],
        "f": device.clock,
        "N_tcu": device.tensor_cores,
        "bw_G": device.bw_global,
        "bw_S": device.bw_shared,
    }
    for name, cycles in device.cpi_table:
        values[f"CPI_{name}"] = cycles
    if mma in device.cpi:
        values["CPI"] = device.cpi[mma]
    return float(expr.subs({symbol(name): value for name, value in values.items()}))
