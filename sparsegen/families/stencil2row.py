"""``stencil2row`` (ConvStencil): two matrices A and B in shared memory, dual tessellation on tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from sparsegen.cost.conflicts import fragment_degree, store_degree
from sparsegen.cost.devices import HOPPER, DeviceProfile
from sparsegen.families.base import ALIGN, FUSE, STAGES, WARPS, Geometry, Num, StencilFamily, Work, fused_k, rounds
from sparsegen.families.mma import check_mma, mma_values, mma_word, narrowing
from sparsegen.footprint import Footprint
from sparsegen.ir.errors import ScheduleError
from sparsegen.ir.numbers.arithmetic import up
from sparsegen.ir.numbers.stencil2row import HELD, Matrices, multiplied
from sparsegen.registry import register
from sparsegen.schedule import StencilSchedule, Word, pair, switch, text
from sparsegen.sizes import MAX_FUSE, MMA

#: Of 402 kernels with stages=1 (nvcc 13, sm_90), the median.
USED = {"f64.m8n8k4": 0.65, "f64.m16n8k4": 0.79, "f64.m16n8k8": 0.79, "f64.m16n8k16": 0.63, "none": 0.77}
#: Most doubles of weights that a lane may hold: half of the 255 registers a thread can have (two registers a double).
MAX_FRAGMENT_DOUBLES = 64
#: A lookup table packs two offsets of 16 bits in a word.
LUT_OFFSETS = 1 << 16
#: Products (fragments of accumulators) that a warp may keep: nvcc spills above.
MAX_PRODUCTS = {"mma": 8, "none": 4}
#: Loads out of shared memory under way a thread (ir/lower/copy.py): stores follow them, so nvcc unrolls no more.
IN_FLIGHT_SHARED = 2
#: Clocks that the lookup table adds to a round of loads, out of shared and out of global memory; fitted.
LUT_WAIT, LUT_WAIT_FAR = 190.0, 80.0
#: Warp instructions of 32 elements put into A and B: load a value, find its two places (in the table, or by divisions,
#: which nvcc moves out of the loop where registers allow), store it.  Of all that follows: counters of
#: 110 generated kernels on one H200 (nvcc 13), within 17 %.
FILL = {"lut": 10.8, "computed": 17.0, "predicate": 1.3}
#: What 32 elements cost more straight from global memory; 32 copies; a warp's plane; 32 operands of A and B; an mma;
#: a point of a small plane and 32 outputs; a multiply-add on the CUDA cores with its operand of A (mma=none; fitted).
SYNC, COPY, PLANE, OPERAND, MULTIPLY, SMALL, FMA = 9.5, 12.2, 100.0, 2.2, 0.9, 18.0, 1.45
#: Wavefronts of 128 bytes of the window between global memory and A and B, the stores left out; the same counters.
RAW = 5.0
#: Wavefronts for the operands of A of 32 multiply-adds on the CUDA cores, of 4 bytes; and how many times as much of
#: both their weights take, which come once for all products that a warp keeps.  Fitted.
FMA_WAVES, WEIGHTS = 0.38, 2.2
#: How much longer those take from A and B in global memory; one kernel (docs/bench/ablation.json).
FAR = 2.3
#: Clocks that a round of stores with predicates takes more than one with dirty bits before sm_90: the paper's 4 to 19 %
#: on the A100.  On the H200 no difference was found (nvcc 13).
BRANCH = 250.0


def geometry(s: StencilSchedule, fp: Footprint) -> Geometry:
    """A and B: ``groups`` rows each of ``k`` columns a window row, ``stride_ab`` apart; on three axes of each plane."""
    rows, cols = s.tile
    itemsize, kk = fp.itemsize, fused_k(fp.k, s.fuse)
    ky = 1 if fp.flat else kk
    m, _, k_f, _ = MMA[s.mma]
    n = Matrices(k=kk, height=ky, rows=rows, cols=cols, m=m, pad=s.pad)
    slices = 2 * n.depth // 4
    of_planes = plane_points(fp, s.fuse)
    large = multiplied(of_planes, ky * kk)
    planes = sum(large)
    raw_tiles, smem = s.stages - 1, n.size * itemsize
    for _ in range(planes if raw_tiles else 0):
        smem = up(smem, ALIGN) + raw_tiles * n.window[0] * n.width * itemsize
    runs = [] if s.mma == "none" else narrowing(s.mma, slices)
    mmas = [(name, count * n.blocks * n.products * planes) for name, count in runs]
    small = sum(points for points, is_large in zip(of_planes, large, strict=True) if not is_large)
    held = slices * n.blocks * planes <= HELD and not small
    return Geometry(
        kk, rows, cols, *n.window, s.threads, 0 if s.transform == "explicit" else smem, n.before, n.width,
        m=m, k_f=k_f, groups=n.groups, n_tiles=n.blocks, depth=n.depth, stride_ab=n.stride,
        offset_dirty=2 * n.a_size, tiles_per_warp=n.products // s.warps,
        fragments=0 if s.mma == "none" else slices * n.blocks * (planes if held else 1), halo_planes=planes,
        points=small, mmas=tuple(mmas),
    )  # fmt: skip


def plane_points(fp: Footprint, fuse: int) -> tuple[int, ...]:
    """Points of each plane of the fused weights: of a plane alone, on fewer than three axes."""
    kk = fused_k(fp.k, fuse)
    if fp.axes < 3:
        return (kk if fp.flat else kk * kk,)
    return fp.planes[fuse - 1] if fp.planes else (kk * kk,) * kk


def registers(s: StencilSchedule, g: Geometry, fp: Footprint) -> int:
    """Weights, accumulators and operands under way.  Fitted to nvcc 13 on sm_90."""
    if s.mma == "none":  # a lane holds two outputs of each block of 8 columns of its rows, and where they go
        return 48 + 2 * (g.k + 1) + (2 + fp.itemsize // 2) * g.tiles_per_warp * g.n_tiles
    acc = g.tiles_per_warp * g.n_tiles * g.m // 4  # all of them live over the whole sum
    a = min(g.tiles_per_warp, 4) * g.m * g.k_f // 32  # A fragments in flight
    addresses = (28 if s.mma == "f64.m16n8k4" else 48) + (24 if g.groups > g.m else 0)
    far = 40 if s.transform == "explicit" else 0  # operands from global memory are all loaded early
    addresses += 4 + 2 * g.k_f if g.points and g.m > 8 else 0  # cells around each output
    return addresses + far + 2 * (g.fragments + acc + a)


def used(s: StencilSchedule, g: Geometry, fp: Footprint) -> float:
    """The share of its registers that nvcc uses in the middle."""
    return registers(s, g, fp) * USED[s.mma]


def check(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile) -> None:
    """What only stencil2row asks for: the mma, room for its weights, offsets that fit the table."""
    if fp.itemsize < 4:
        raise ScheduleError(
            f"stencil2row multiplies values as they are stored, the stencil is {fp.dtype} and sums in f32",
            hint="choose tiled, stream or direct",
        )
    if s.mma != "none":
        check_mma(s, g, fp, device, MMA, "set mma=none, or choose tiled or direct")
    if s.lut and g.offset_dirty >= LUT_OFFSETS:
        raise ScheduleError(
            f"lut=on: A and B have {g.offset_dirty} elements, the table's offsets end at {LUT_OFFSETS - 1}",
            hint="set lut=off, or make tile= smaller",
        )
    few = s.mma == "none" or s.transform == "explicit" or (g.points > 0 and g.m > 8)
    most = MAX_PRODUCTS["none" if few else "mma"]
    if (sums := g.tiles_per_warp * g.n_tiles) > most:
        raise ScheduleError(
            f"a warp keeps {sums} products of a tile in registers; {most} fit with mma={s.mma}",
            hint="make tile= smaller, or raise warps",
        )
    if s.mma == "none":
        return
    if sums < 2:
        raise ScheduleError(
            "a warp with one product loads all its operands at once, and nvcc spills them",
            hint="make tile= larger, or lower warps",
        )
    if g.fragments > MAX_FRAGMENT_DOUBLES:
        raise ScheduleError(
            f"an edge of {g.k} (fuse={s.fuse}) keeps {g.fragments} doubles of weights in each lane's registers; "
            f"{MAX_FRAGMENT_DOUBLES} fit",
            hint="lower fuse, or choose tiled or direct",
        )


def space(fp: Footprint, limit: int, ablation: bool = False) -> Iterator[StencilSchedule]:
    """Every mma shape and ring; with ``ablation`` also pad=off and transform=explicit."""
    both = (True, False)
    for fuse, mma in product(range(1, min(limit, MAX_FUSE) + 1), MMA):
        unit = MMA[mma][0] * (fused_k(fp.k, fuse) + 1)
        for (rows, groups, warps), stages, lut, dirty, pad, transform in product(
            tiles(fp), (1, 2, 3, 4), both, both, both if ablation else (True,),
            ("implicit", "explicit") if ablation else ("implicit",),
        ):  # fmt: skip
            if transform == "implicit" or stages == 1:
                yield StencilSchedule(
                    "stencil2row", tile=(rows, groups * unit), warps=warps, stages=stages, mma=mma, fuse=fuse, lut=lut,
                    dirty=dirty, pad=pad, transform=transform,
                )  # fmt: skip


def tiles(fp: Footprint) -> list[tuple[int, int, int]]:
    """(rows, groups of M * (k + 1) columns, warps) to try: runs of a row, or windows of a plane."""
    if fp.flat:
        return [(1, n * w, w) for n in (1, 2, 4, 8) for w in (4, 8, 16)]
    return [(r, n, w) for r in (16, 32, 64) for n in (1, 2) for w in (4, 8, 16) if r * n % w == 0]


def values(s: StencilSchedule, g: Geometry, fp: Footprint, device: DeviceProfile, even: bool) -> dict[str, float]:
    """Products, their cycles, and conflict degrees counted from addresses."""
    f64 = fp.dtype == "f64"
    elements = g.halo_rows * g.halo_cols / g.threads
    return {
        "W": g.halo_cols if s.stages == 1 else g.pitch_raw,
        "M": g.m,
        "N": 8 * g.n_tiles,
        "D": g.depth,
        **mma_values(g, device),
        "fragments": g.fragments,
        "held": g.tiles_per_warp,
        "H": g.halo_planes,
        "small": g.points,
        "reload": g.halo_planes if g.points or g.halo_planes * g.depth // 2 * g.n_tiles > g.fragments else 0,
        "branch": 0.0 if s.dirty or device.compute_capability >= HOPPER else BRANCH,
        "lat_table": LUT_WAIT if s.stages > 1 else LUT_WAIT_FAR,
        "rounds": rounds(elements, IN_FLIGHT_SHARED) if s.stages > 1 else rounds(elements),
        "d_load": fragment_degree(g.stride_ab) if f64 else 1.0,
        "d_store": store_degree(g, s.dirty) if f64 and s.transform == "implicit" else 1.0,
        "fill": FILL["lut" if s.lut else "computed"]
        + (0.0 if s.dirty else FILL["predicate"])
        + (SYNC if s.stages == 1 else 0.0),
    }


def work(s: StencilSchedule, v: Any, element: Num, out: Num) -> Work:
    """A and B in shared memory, dual tessellation: products of M x (k + 1) outputs, for each plane that is worth it."""
    stays, explicit = s.stages > 1, s.transform == "explicit"
    products = out / (v.M * (v.k + 1))
    operand = 2 * v.D * v.M * products * v.H  # elements of A and B that are read
    window = (v.R + v.reach) * (v.C + v.k - 1) * v.H
    made = 2 * v.k / (v.k + 1) if explicit else 0  # A and B of a plane are made once, all planes of weights read them
    read = made * v.H + (1 if v.small else 0) if explicit else 1
    loaded = made * v.H * v.C * (v.R + v.reach) if explicit else window
    stores = loaded if explicit else 2 * window * v.d_store
    traffic = stores + (0 if explicit else RAW * window) + (window * 8 / v.item if s.lut else 0)
    copies = element / v.vector / 32 * COPY if stays else 0
    fill = {"shared": traffic * v.item / v.bw_S, "issue": (loaded / 32 * v.fill + copies) / v.sub}
    near = v.lat_shared if stays else v.lat_l1  # the memory itself is waited for besides
    wait = v.rounds * (near + (v.lat_table if s.lut else 0)) * v.H
    wait += v.rounds * v.branch * v.H
    barriers = 2 * v.lat_barrier * v.H + v.lat_shared
    if s.mma == "none":  # a lane makes two outputs a block of 8 columns, from one of A and two weights through L1
        fma, far, weights = operand * v.N, FAR if explicit else 1, WEIGHTS / v.held
        use = {"fma": fma / v.fma_rate, "shared": (FMA_WAVES * (1 + weights) * far * fma + out) * v.item / v.bw_S,
               "issue": (FMA * (1 + weights) * fma / 32 + v.threads / 32 * PLANE * v.H) / v.sub}  # fmt: skip
        return Work((fill, use, *points(v, out)), wait + barriers, loaded, read, made=made)
    table = v.fragments * v.threads
    use = {
        "tensor": v.q_mma / v.sub,
        "shared": (operand * v.d_load + out + v.reload * table) * v.item / v.bw_S,
        "issue": (operand / 32 * OPERAND + v.n_mma * MULTIPLY + v.threads / 32 * PLANE * v.H) / v.sub,
    }
    if not stays:
        fill["shared"] += table * v.item / v.bw_S
        wait += v.lat_l2
    setup = v.lat_dram + table * v.item / v.bw_L2 if stays else 0
    return Work((fill, use, *points(v, out)), wait + barriers, loaded, read, setup, made=made)


def points(v: Any, out: Num) -> tuple[dict[str, Num], ...]:
    """The phase of the small planes: an element of L1 a point and output, half of a load, a multiply-add."""
    if not v.small:
        return ()
    n = out * v.small
    return ({"fma": n / v.fma_rate, "shared": 3 * n * v.item / v.bw_S, "issue": SMALL * n / 32 / v.sub},)


def kernel(s: StencilSchedule, g: Geometry, stay: int, per_sm: int) -> Any:
    """The two matrices of a tile, and their products."""
    from sparsegen.ir.kernels.stencil2row import Stencil2Row

    mma, explicit = "fma" if s.mma == "none" else s.mma, s.transform == "explicit"
    return Stencil2Row(s.tile[0], s.tile[1], mma, s.warps, s.stages, s.lut, s.dirty, s.pad, explicit, stay, per_sm)


def contradictions(s: StencilSchedule) -> None:
    """Matrices that a launch of their own makes are not fetched ahead; a tile has rows and columns."""
    if s.transform == "explicit" and s.stages > 1:
        raise ScheduleError(
            f"transform=explicit contradicts stages={s.stages}", hint="set stages=1, or transform=implicit"
        )
    if s.tile is not None and min(s.tile) < 1:
        raise ScheduleError(
            f"tile={s.tile[0]}x{s.tile[1]} is empty", hint="write two positive sizes, such as tile=32x64"
        )


FAMILY = register(StencilFamily(
    name="stencil2row",
    words=(
        mma_word("f64.m8n8k4"), FUSE, Word("tile", pair, auto=True), WARPS, STAGES, Word("lut", switch, True),
        Word("dirty", switch, True), Word("pad", switch, True),
        Word("transform", text, "implicit", choices=("implicit", "explicit")),
    ),
    axes=(1, 2, 3), rim="fused", geometry=geometry, registers=registers, check=check, space=space, values=values,
    work=work, kernel=kernel, used=used, contradictions=contradictions,
))  # fmt: skip
