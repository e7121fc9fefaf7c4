"""``prune``: which weights stay, by magnitude or by magnitude times a calibration weight, where the weights are.

A score is |w| * importance, in f64; of vectors and blocks it is the sum of their elements' scores.  Wanda's rule is the
importance [K] of the norms of a layer's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from numbers import Real
from typing import Any, Final

import numpy as np

from sparsegen.arrays import describe, detached, host_array
from sparsegen.callsite import located, user_loc
from sparsegen.formats.library import FLOATS, NUMPY, Library, floats, library_of
from sparsegen.formats.nm import TALLEST, Vector, checked, whole
from sparsegen.ir.errors import ArrayError, FormatError
from sparsegen.ir.types import f64
from sparsegen.schedule import nearest
from sparsegen.views import ArrayView

#: pattern -> the options that it takes.
OPTIONS: Final = {"nm": ("n", "m", "vector"), "unstructured": ("sparsity",), "vector": ("sparsity", "vector")}
_INFINITE: Final = 2.0**1000  #: the score of an infinite weight: a sum of such is finite, below that of a NaN


def prune(
    w: Any,
    pattern: str = "nm",
    *,
    n: int | None = None,
    m: int | None = None,
    vector: Vector | None = None,
    importance: Any = None,
    sparsity: float | None = None,
) -> Any:
    """A copy of a matrix [M, K] with the less important weights set to 0; ``w`` is not changed.

    ``w``: an array of NumPy, CuPy or torch in f16, bf16, f32 or f64.  The copy is an array of the same library, on the
    same device, with the same order of axes; what stays is the same bit for bit.  A tensor that requires grad gives one
    that does not.

    ``pattern``: what is set to 0.

    - ``"nm"``: of every ``m`` consecutive columns all but the ``n`` with the largest scores, by default 2 of 4.
      ``vector=r``: r adjacent rows keep the same columns, those with the largest sums over the rows; ``vector=(r, c)``:
      whole blocks r x c are kept.  What ``sparse(w, "nm", n=n, m=m, vector=vector)`` takes.
    - ``"unstructured"``: the share ``sparsity`` (0 to 1) of all weights, those with the smallest scores.
    - ``"vector"``: the share ``sparsity`` of the vectors of ``vector`` adjacent rows (8 by default) of one column.

    A score is |w| * ``importance``: an array [M, K], or [K] for one number a column, such as the norms of the layer's
    inputs in a calibration run (Wanda); without it |w|.  Numbers >= 0, on the host or where ``w`` is.  It is computed
    and summed up in f64.  Exactly as many stay as the pattern says: ``round(sparsity * count)`` go; of equal scores the
    first stays (the lower column; the lower row, then).  A NaN is above all else and an infinity above all numbers, so
    both stay if anything does.  The last group of rows and the last window of columns may be short.

    Raises ArrayError (what ``w`` and ``importance`` are) or FormatError (an unknown pattern, options that make none).
    """
    with located(user_loc()):
        given = {"n": n, "m": m, "vector": vector, "sparsity": sparsity}
        _check_options(pattern, [name for name, value in given.items() if value is not None])
        view = _weights(w)
        lib, _ = library_of(view)
        with lib.active():
            array = np.asarray(view.owner) if lib is NUMPY else view.owner  # of np.matrix the plain array
            scores = _scores(lib, array, None if importance is None else _importance(lib, view, importance))
            out = lib.copy(array)
            _, bits = library_of(describe(out))
            if pattern == "nm":
                numbers = checked(2 if n is None else n, 4 if m is None else m, 1 if vector is None else vector)
                _keep_of_windows(lib, scores, bits, *numbers)
            else:
                rows = 1 if pattern == "unstructured" else _rows(8 if vector is None else vector)
                _keep_vectors(lib, scores, bits, rows, _share(sparsity))
        return out


#: The scores of a range of rows, f64 [rows, K].
Scores = Callable[[slice], Any]


def _keep_of_windows(lib: Library, scores: Scores, bits: Any, n: int, m: int, vector: tuple[int, int]) -> None:
    """Set to 0 what an N:M pattern leaves out."""
    (r, c), windows = vector, -(-bits.shape[1] // m)
    for rows, groups in _bands(lib, bits.shape, r):
        blocks = (groups.stop - groups.start, r, windows, m // c, c)
        sums = _filled(lib, scores(rows), r, m).reshape(blocks).sum((1, 4)).reshape(-1, m // c)
        keep = lib.zeros(sums.shape, "bool")
        keep[lib.arange(sums.shape[0]).reshape(-1, 1), lib.order(-sums)[:, : n // c]] = True
        _keep(lib, bits[rows], keep.reshape(blocks[0], 1, windows, m // c, 1), blocks)


def _keep_vectors(lib: Library, scores: Scores, bits: Any, r: int, sparsity: float) -> None:
    """Set to 0 the share of all vectors of r rows that has the smallest sums."""
    cols = bits.shape[1]
    sums = lib.zeros((-(-bits.shape[0] // r), cols), "float64")
    for rows, groups in _bands(lib, bits.shape, r):
        sums[groups] = _filled(lib, scores(rows), r, 1).reshape(-1, r, cols).sum(1)
    count = sums.shape[0] * cols
    keep = _largest(lib, sums.reshape(-1), count - round(sparsity * count)).reshape(-1, 1, cols)
    for rows, groups in _bands(lib, bits.shape, r):
        _keep(lib, bits[rows], keep[groups], (groups.stop - groups.start, r, cols))


def _bands(lib: Library, shape: Any, r: int) -> Iterator[tuple[slice, slice]]:
    """Ranges of rows, and of groups of r rows, of as many elements as are taken at once."""
    step = max(1, lib.band // (r * shape[1]))
    groups = -(-shape[0] // r)
    for first in range(0, groups, step):
        last = min(first + step, groups)
        yield slice(first * r, min(last * r, shape[0])), slice(first, last)


def _filled(lib: Library, scores: Any, r: int, m: int) -> Any:
    """Scores with zeros up to whole groups of r rows and whole windows of m columns."""
    rows, cols = scores.shape
    whole = lib.zeros((rows + -rows % r, cols + -cols % m), "float64")
    whole[:rows, :cols] = scores
    return whole


def _keep(lib: Library, bits: Any, keep: Any, blocks: tuple[int, ...]) -> None:
    """Set rows to 0 but where ``keep`` is true, which is one number for several elements of the ``blocks``."""
    elements = lib.xp.broadcast_to(keep, blocks).reshape(blocks[0] * blocks[1], -1)
    bits *= elements[: bits.shape[0], : bits.shape[1]]


def _largest(lib: Library, sums: Any, stay: int) -> Any:
    """A mask of the so many largest of an array of one axis, of equal ones the first."""
    if not stay:
        return lib.zeros(sums.shape, "bool")
    least = lib.ranked(sums, sums.shape[0] - stay)
    keep = sums > least
    keep[lib.columns((sums == least).reshape(1, -1))[: stay - int(keep.sum())]] = True
    return keep


# -------------------------------------------------------------------------------------------------------------- scores
def _scores(lib: Library, w: Any, by: Any) -> Scores:
    """The scores of rows of a matrix, for its importance in f64 if there is any."""

    def of(rows: slice) -> Any:
        with np.errstate(all="ignore"):
            score = abs(lib.cast(w[rows], f64))
            if by is not None:
                score = score * (by if by.ndim == 1 else by[rows])
            return lib.xp.nan_to_num(score, nan=inf, posinf=_INFINITE)

    return of


def _importance(lib: Library, of: ArrayView, importance: Any) -> Any:
    """The importance as f64, in the library and on the device of the weights."""
    view = describe(detached(importance))
    layout, (rows, cols) = view.layout, of.layout.shape
    if layout.problem is not None or not (layout.dtype.name in FLOATS or layout.dtype.kind in "iu"):
        raise ArrayError(
            f"importance is {layout.problem[0] if layout.problem else f'of dtype {layout.dtype}'}",
            hint="give real numbers, such as np.linalg.norm(inputs, axis=0)",
        )
    if layout.shape not in ((cols,), (rows, cols)):
        raise ArrayError(
            f"importance has shape {layout.shape}, w {of.layout.shape}",
            hint=f"give one number a column, shape {(cols,)}, or one a weight, {(rows, cols)}",
        )
    if layout.device_kind == "host":
        by = lib.constant(host_array(view).astype(np.float64))
    elif (layout.library, layout.device_index) == (of.layout.library, of.layout.device_index):
        by = lib.cast(view.owner, f64)
    else:
        raise ArrayError(
            f"importance is {layout.library}'s on {layout.where()}, w {of.layout.library}'s on {of.layout.where()}",
            hint="give both in one library on one device, or importance on the host",
        )
    if (place := lib.first(~(by >= 0).reshape(-1))) is not None:
        raise ArrayError(
            f"importance{[int(i) for i in np.unravel_index(place, layout.shape)]} is {float(by.reshape(-1)[place])}",
            hint="give numbers >= 0, such as the norms of a layer's inputs; 0 prunes first, and inf keeps",
        )
    return by


# -------------------------------------------------------------------------------------------------------------- checks
def _weights(w: Any) -> ArrayView:
    """The view of a matrix that can be pruned; ArrayError for anything else."""
    view = floats(w, "pruned")
    layout = view.layout
    if len(layout.shape) != 2 or 0 in layout.shape:
        raise ArrayError(
            f"w has shape {layout.shape}",
            hint="pass a matrix [M, K] of at least one row and one column: w.reshape(M, K)",
        )
    return view


def _check_options(pattern: Any, given: list[str]) -> None:
    """FormatError for an unknown pattern, and for options that it does not take."""
    if not isinstance(pattern, str) or pattern not in OPTIONS:
        raise FormatError(
            f"there is no pattern {pattern!r}",
            hint=f'{nearest(str(pattern), OPTIONS)}use one of {", ".join(OPTIONS)}; 2 of every 4 is "nm", n=2, m=4',
        )
    if foreign := [name for name in given if name not in OPTIONS[pattern]]:
        raise FormatError(
            f'the pattern "{pattern}" takes no {" and no ".join(foreign)}',
            hint=f"leave it away: it takes {', '.join(OPTIONS[pattern])} and importance",
        )


def _rows(vector: Any) -> int:
    rows = whole(vector)
    if rows is None or not 1 <= rows <= TALLEST:
        raise FormatError(
            f"vector={vector!r} is no number of rows",
            hint=f"give 1 to {TALLEST} rows of one column that go or stay together, such as vector=8",
        )
    return rows


def _share(sparsity: Any) -> float:
    if isinstance(sparsity, bool) or not isinstance(sparsity, Real) or not 0 <= float(sparsity) <= 1:
        raise FormatError(
            f"sparsity={sparsity!r} is no share of the weights", hint="from 0 (all stay) to 1; sparsity=0.6 prunes 60 %"
        )
    return float(sparsity)
