"""``k.explain()``: what was chosen, what it costs and why, what was rejected, and what would change the choice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from sparsegen.compiler import Choice, cheapest, grid, ranked, total_time
from sparsegen.footprint import MAX_RANK, Footprint
from sparsegen.ir.boundary import describe
from sparsegen.ir.fuse import convolve
from sparsegen.ir.separable import separate
from sparsegen.schedule import FAMILIES, MAX_FUSE

if TYPE_CHECKING:
    from sparsegen.cost.devices import DeviceProfile
    from sparsegen.cost.search import Ranking
    from sparsegen.cost.stencil import Cost
    from sparsegen.execute import Plan
    from sparsegen.kernel import Kernel
    from sparsegen.target import Target

#: Figures of a device whose doubling is tried: key of the profile -> what it is in words.
_LEVERS = {
    "hbm_copy_gbs": "DRAM bandwidth",
    "l2_bytes_per_clk_sm": "bandwidth between an SM and L2",
    "smem_bytes_per_clk_sm": "bandwidth of shared memory and L1",
    "f64_fma_per_clk_sm": "FP64 FMA rate",
    "f32_fma_per_clk_sm": "FP32 FMA rate",
}
#: Schedules of stencil2row, of each fusion and mma shape, that are ranked anew for a changed device.
_POOL = 80


def seconds(t: float) -> str:
    """A time with a unit that suits it, three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if t >= scale:
            return f"{t / scale:.3g} {unit}"
    return f"{t / 1e-9:.3g} ns"


def nbytes(n: int) -> str:
    """A size with a unit that suits it."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n >= 1 << shift:
            return f"{n / (1 << shift):.3g} {unit}"
    return f"{n} bytes"


def explain(kernel: Kernel, choice: Choice, target: Target, plan: Plan) -> str:
    """The text of ``Kernel.explain``."""
    cost = kernel.cost
    ranking = choice.ranking or ranked(kernel.stencil.gridded, grid(kernel.shape), kernel.steps, target.profile)
    parts = [
        _head(kernel, target, cost, plan),
        _terms(cost),
        _families(kernel, ranking, cost, choice.automatic),
        _rejected(ranking),
        _change(kernel, ranking, cost, target.profile),
        _rest(kernel, plan),
    ]
    return "\n\n".join(filter(None, parts))


def _head(kernel: Kernel, target: Target, cost: Cost, plan: Plan) -> str:
    st, profile = kernel.stencil, target.profile
    size = "x".join(map(str, kernel.shape))
    extents = "x".join(map(str, st.weights.shape))
    many = len(plan.parts) > 1 or plan.passes > 1
    passes = " + ".join(f"{n} of {program.steps} step{'s' * (program.steps > 1)}" for program, n in plan.parts)
    strips = []
    if kernel.schedule.family in ("stream", "patches"):
        v = cost.values
        strips = [
            f"strips     {v['C'] / v['warps']:.0f} of {v['W'] / v['warps']:.0f} columns a warp, {v['R']:.0f} rows "
            f"down; {cost.blocks_per_sm} blocks of {v['warps']:.0f} warps an SM"
        ]
    if kernel.schedule.family == "lowrank":
        terms = separate(convolve(st.weights, kernel.schedule.fuse), MAX_RANK)
        strips = [f"rank       {terms.rank} (a column times a row each); residual {terms.residual:.1e} of the weights"]
    lines = [
        f"{st.name}: {st.points}-point {st.kind}, {extents}, {st.dtype}, {describe(st.sides)}; {size} cells, "
        f"{kernel.steps} time step{'s' * (kernel.steps > 1)}",
        f"device     {profile.name} ({profile.arch})",
        f"backend    {target.backend}",
        f"schedule   {kernel.schedule}",
        *strips,
        f"predicted  {seconds(cost.time)} a pass of {cost.steps_per_launch} step{'s' * (cost.steps_per_launch > 1)}, "
        f"{cost.rate:.1f} GS/s; bound by {cost.binds}",
    ]
    if many:
        lines.append(f"passes     {passes}; {seconds(total_time(cost, kernel.steps))} in all")
    if target.note:
        lines.insert(2, f"note       {target.note}")
    return "\n".join(lines)


def _terms(cost: Cost) -> str:
    reasons = cost.reasons()
    rows = sorted(cost.terms.items(), key=lambda item: -item[1])
    lines = [f"  {name:<10} {seconds(t):>9}{' *' if name == cost.binds else '  '} {reasons[name]}" for name, t in rows]
    return "\n".join(["terms of one pass (they overlap; * binds)", *lines])


def _families(kernel: Kernel, ranking: Ranking, cost: Cost, automatic: bool) -> str:
    steps = kernel.steps
    mine = total_time(cost, steps)
    groups: dict[str, list[Cost]] = {}
    for c in ranking.costs:
        groups.setdefault(c.schedule.family, []).append(c)
    best = sorted((cheapest(group, steps) for group in groups.values()), key=lambda c: total_time(c, steps))
    lines = []
    for c in best:
        ratio = total_time(c, steps) / mine
        verdict = "chosen" if c.schedule == cost.schedule else f"{ratio:.2f}x its time, bound by {c.binds}"
        lines.append(f"  {c.schedule}: {c.rate:.1f} GS/s; {verdict}")
    lines += [f"  {family}: no legal schedule" for family in FAMILIES if family not in groups]
    head = f"best of each family, of {len(ranking.costs)} legal schedules"
    if not automatic:
        head += " (this one was given, not chosen)"
    return "\n".join([head, *lines])


def _rejected(ranking: Ranking, most: int = 6) -> str:
    if not ranking.rejected:
        return ""
    groups: Counter[tuple[str, str]] = Counter()
    example: dict[tuple[str, str], str] = {}
    for r in ranking.rejected:
        kind = "".join("#" if ch.isdigit() else ch for ch in r.reason)
        key = (r.schedule.family, kind)
        groups[key] += 1
        example.setdefault(key, f"{r.schedule}: {r.reason}")
    lines = [f"  {count:>4} like {example[key]}" for key, count in groups.most_common(most)]
    more = len(groups) - most
    if more > 0:
        lines.append(f"       and {more} more kinds of reason")
    return "\n".join([f"refused: {len(ranking.rejected)} schedules that cannot run here", *lines])


def _change(kernel: Kernel, ranking: Ranking, cost: Cost, profile: DeviceProfile) -> str:
    """Which doubled figure of the device, or which size, would make another family or fusion the cheapest."""
    from sparsegen.cost.search import rank

    st, steps = kernel.stencil, kernel.steps
    count: Counter[tuple[str, int, str]] = Counter()
    pool = [cost.schedule]
    for c in ranking.costs:  # of stencil2row, which has thousands, the best of each fusion and mma shape
        kind = (c.schedule.family, c.schedule.steps, c.schedule.mma)
        count[kind] += 1
        if (c.schedule.family != "stencil2row" or count[kind] <= _POOL) and c.schedule != cost.schedule:
            pool.append(c.schedule)
    shape = kernel.shape

    def winner(device: DeviceProfile, shape: tuple[int, ...]) -> Cost:
        found = rank(Footprint.of(st.gridded), device, grid(shape), schedules=pool)
        return cheapest(found.costs, steps)

    usual = winner(profile, shape).schedule
    tried = [(f"twice the {what}", replace(profile, **{key: 2 * getattr(profile, key)}), shape)
             for key, what in _LEVERS.items()]  # fmt: skip
    shapes = [cpi for cpi in profile.cpi_table if cpi[0].startswith("f64")]
    if shapes:
        faster = tuple((name, c / 2 if name.startswith("f64") else c) for name, c in profile.cpi_table)
        tried.append(("twice the rate of FP64 mma", replace(profile, cpi_table=faster), shape))
    larger = [tuple(n * f for n in shape) for f in (4, 16)]
    tried += [(f"a grid of {'x'.join(map(str, size))}", profile, size) for size in larger]
    lines = []
    for what, device, size in tried:
        c = winner(device, size)
        if (c.schedule.family, c.schedule.steps, c.schedule.mma) != (usual.family, usual.steps, usual.mma):
            lines.append(f"  {what}: {c.schedule}")
    if kernel.steps < MAX_FUSE:
        lines.append(f"  more than {kernel.steps} step{'s' * (kernel.steps > 1)} a call: time steps can be fused")
    if not lines:
        lines.append("  no doubled figure of the device, and no larger grid")
    return "\n".join(["what would change the choice", *lines])


def _rest(kernel: Kernel, plan: Plan) -> str:
    space = plan.workspace_nbytes
    lines = [f"workspace  {nbytes(space)}{' (the second field of the time loop)' * ('field' in plan.workspaces)}"]
    lines.append(
        "nonfinite  a NaN or Inf may spread farther than the stencil, within the tile that reads it"
        if kernel.schedule.widens
        else "nonfinite  a NaN or Inf reaches only the cells that the weights connect it to"
    )
    if kernel.backend == "cuda":
        lines.append("arrays     device arrays are used where they are; host arrays are copied in and out once a call")
    else:
        lines.append("arrays     host arrays, used where they are")
    return "\n".join(lines)
