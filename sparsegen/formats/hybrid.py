"""Dense tiles and the rest (BSA-SpMM, Euro-Par 2024): rows in an order, tiles that hold enough, and what is left.

The rows are put in an order (by default ``sparsegen.reorder``'s "bsa").  Of the matrix in that order, cut into tiles of
tau x tau (the last ones may be short), those with more than delta * tau^2 entries are kept whole:

- ``order`` int32 [M]: row i here is row ``order[i]`` of the matrix.
- ``ptr`` int32 [strips + 1]: the first dense tile of each tau rows; at the end, all of them.
- ``idx`` int32: which tau columns each dense tile covers, ascending in a strip.
- ``values``: element (r, c) of tile t is ``values[(t * tau + r) * tau + c]``; what lies beyond the matrix is zero.
- ``rest_ptr`` int32 [M + 1], ``rest_idx`` int32, ``rest_values``: all other entries as compressed sparse rows in that
  order, explicit zeros included.

Entries are counted as they are stored: an explicit zero counts, and becomes one of the zeros of a dense tile.

``blocked_ell`` is the same with the tiles as the paper has them: without ``ptr``, but ``idx`` int32 [strips, width]
with as many in each strip as the longest one has, -1 behind the others', and as many tiles of zeros among the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparsegen.arguments import positive
from sparsegen.callsite import located, user_loc
from sparsegen.cost.devices import DeviceProfile
from sparsegen.formats.axes import AGAIN, Compressed, Dense, Pointers, Positions, Stored
from sparsegen.formats.blocks import Blocked
from sparsegen.formats.csr import Csr, OfRows, csr
from sparsegen.formats.format import Format, Shape
from sparsegen.formats.library import Library
from sparsegen.formats.padded import Padded
from sparsegen.formats.rows import Rows
from sparsegen.formats.stats import Stats
from sparsegen.formats.tiles import Tiled, pointers
from sparsegen.ir.errors import FormatError
from sparsegen.ir.types import DType, s32, s64
from sparsegen.registry import families
from sparsegen.reordering.blocks import encoded
from sparsegen.reordering.order import COLUMNS, Method, Share, check_device, check_options, check_permutation, ordered
from sparsegen.reordering.picture import Plan, svg
from sparsegen.reordering.report import both, table

#: The arrays of the rest by the names that they have in rows of their own.
REST: Final = {"ptr": "rest_ptr", "idx": "rest_idx", "values": "rest_values"}


@dataclass(frozen=True)
class HybridFormat(Format):
    """Its blocks and axes are those of the dense tiles."""

    @cached_property
    def tiles(self) -> Format:
        """The format of the dense tiles, of whole tiles only."""
        return Format(self.name, self.dtype, self.blocks, self.axes)

    @cached_property
    def rest(self) -> Format:
        """The format of all other entries."""
        return csr(self.dtype)

    @property
    def tile(self) -> int:
        """Rows and columns of a tile."""
        return self.blocks.rows

    @property
    def stored(self) -> tuple[Stored, ...]:
        rest = (Stored(REST[array.name], array.dtype) for array in self.rest.stored)
        return (Stored("order", s32), *rest, *self.tiles.stored)

    @property
    def open(self) -> bool:
        """Whether delta or alpha is left to the cost model."""
        return "device" in dict(self.options)

    def of_rest(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays of the rest as compressed sparse rows have them."""
        return {name: arrays[here] for name, here in REST.items()}

    def whole(self, shape: Shape) -> Shape:
        """A matrix's shape with its last tiles made whole."""
        rows, cols = (-(-extent // self.tile) * self.tile for extent in shape)
        return rows, cols

    def places(self, lib: Library, arrays: Mapping[str, Any], shape: Shape) -> tuple[Any, Any, Any]:
        """Of each dense tile its number among those that are stored, its strip and its slab, int64; those that only
        fill a strip up are left out."""
        axis, idx = self.sparse, lib.wide(arrays["idx"]).reshape(-1)
        assert isinstance(axis, Positions)
        strip = lib.fibers(axis.starts(lib, arrays, 0, self.blocks.grid(shape)[0]), idx.shape[0])
        at = lib.columns((idx != axis.blank).reshape(1, -1))
        return at, strip[at], idx[at]

    def arranged(self, lib: Library, tiled: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arrays of the format, of those that :meth:`Tiled.cut` makes."""
        ptr, values = lib.wide(tiled["ptr"]), lib.view(tiled["values"], self.raw).reshape(-1, self.inner)
        idx, values = self.sparse.spread(lib, ptr[1:] - ptr[:-1], tiled["idx"], values)
        return {**tiled, "idx": idx, "values": lib.view(values.reshape(-1), self.dtype)}

    def shapes(self, shape: Shape, entries: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the stored arrays, if none of so many entries lies in a dense tile."""
        rest = {REST[name]: size for name, size in self.rest.shapes(shape, entries).items()}
        return {"order": (shape[0],), **rest, **self.tiles.shapes(shape, 0)}

    def zeros(self, lib: Library, shape: Shape) -> dict[str, Any]:
        rest = {REST[name]: array for name, array in self.rest.zeros(lib, shape).items()}
        return {"order": lib.cast(lib.arange(shape[0]), s32), **rest, **self.tiles.zeros(lib, shape)}

    def decode(self, lib: Library, arrays: Mapping[str, Any], shape: Shape) -> Any:
        bits = self.tiles.decode(lib, arrays, shape) | self.rest.decode(lib, self.of_rest(arrays), shape)
        out = lib.zeros(shape, self.raw)
        out[lib.cast(arrays["order"], s64)] = bits
        return out

    def check(self, lib: Library, arrays: Mapping[str, Any], shape: Shape, nnz: int) -> None:
        """FormatError if the arrays have other dtypes or shapes, contradict one another, or hold entries twice."""
        if self.open:
            raise FormatError("delta and alpha are still to be chosen", hint=AGAIN)
        order, tile = next(array for array in self.stored if array.name == "order"), self.tile
        self._expect(lib, arrays, order, (shape[0],), shape)
        check_permutation(lib.to_host(lib.cast(arrays["order"], s64), s64), shape[0])
        rest = self.of_rest(arrays)
        entries = int(rest["idx"].shape[0])
        self.rest.check(lib, rest, shape, entries)
        self.tiles.check(lib, arrays, self.whole(shape), nnz - entries)

        strips, across = self.blocks.grid(shape)
        at, strip, idx = self.places(lib, arrays, shape)
        values = lib.view(arrays["values"], self.raw).reshape(-1, tile, tile)
        right = values[at[idx == across - 1]][:, :, shape[1] - (across - 1) * tile :]
        below = values[at[strip == strips - 1]][:, shape[0] - (strips - 1) * tile :]
        if bool((right != 0).any()) or bool((below != 0).any()):
            raise FormatError(f"the arrays hold elements beyond the matrix {shape[0]}x{shape[1]}", hint=AGAIN)
        row = lib.fibers(lib.wide(rest["ptr"]), entries)
        others = row // tile * across + lib.wide(rest["idx"]) // tile
        held = lib.zeros((entries,), "bool") if not at.shape[0] else lib.xp.isin(others, strip * across + idx)
        if (entry := lib.first(held)) is not None:
            raise FormatError(f"entry {entry} of the rest lies in a dense tile", hint=AGAIN)


def hybrid(
    dtype: DType,
    tile: int = 32,
    delta: Share = 0.3,
    alpha: Share = 0.3,
    method: Method = "bsa",
    columns: int = COLUMNS,
    device: str | None = None,
) -> Format:
    """The format for f32, f16 or bf16; FormatError for options out of their ranges.

    ``columns``: of x, that products are expected to have; ``device``: whose cost model chooses what is ``"auto"``.
    """
    kept = Compressed("slab", Stored("idx", s32), Pointers("ptr", s32))
    return _format("hybrid", dtype, kept, _options(tile, delta, alpha, method, columns, device))


def blocked_ell(
    dtype: DType,
    tile: int = 32,
    delta: Share = 0.3,
    alpha: Share = 0.3,
    method: Method = "bsa",
    columns: int = COLUMNS,
    device: str | None = None,
) -> Format:
    """The same with the dense tiles in Blocked-ELL, as the paper has them for the library that multiplies them."""
    kept = Padded("slab", Stored("idx", s32))
    return _format("blocked_ell", dtype, kept, _options(tile, delta, alpha, method, columns, device))


def _options(
    tile: int, delta: Share, alpha: Share, method: Method, columns: int, device: str | None
) -> tuple[tuple[str, Any], ...]:
    check_options(method, tile, alpha, delta)
    count, left = positive(columns, "columns", FormatError), check_device(device, alpha, delta)
    shares = ((name, v if isinstance(v, str) else float(v)) for name, v in (("delta", delta), ("alpha", alpha)))
    chosen = (("tile", int(tile)), *shares, ("method", method), ("columns", count))
    return (*chosen, ("device", device or "auto")) if left else chosen


@cache
def _format(name: str, dtype: DType, kept: Positions, options: tuple[tuple[str, Any], ...]) -> Format:
    axes, tile = (Dense("strip"), kept, Dense("element")), dict(options)["tile"]
    return HybridFormat(name, dtype, Blocked.plain(tile, tile), axes, options=options)


class Hybrid(OfRows):
    """A matrix of dense tiles and the rest, its rows in an order of its own."""

    @classmethod
    def of_rows(cls, spec: Format, rows: Csr) -> Hybrid:
        assert isinstance(spec, HybridFormat)
        options, lib = dict(spec.options), rows.library
        if spec.open:
            made: Hybrid = _model("hybrid").tiling(rows, options).w
            chosen = replace(spec, options=made.spec.options)
            with lib.active():
                return cls(chosen, made.shape, lib, chosen.arranged(lib, made.arrays), made.nnz)
        with lib.active():
            places = Rows.of(rows)
            permutation, _ = ordered(places, encoded(places, spec.tile), options["method"], options["alpha"], "paper")
            return cls.cut(spec, Tiled.of(rows, permutation, spec.tile))

    @classmethod
    def cut(cls, spec: Format, tiled: Tiled) -> Hybrid:
        """The matrix whose tiles are dense above the delta of a format."""
        assert isinstance(spec, HybridFormat)
        with tiled.library.active():
            arrays, nnz = tiled.cut(dict(spec.options)["delta"], spec.dtype)
            return cls(spec, tiled.shape, tiled.library, spec.arranged(tiled.library, arrays), nnz)

    @classmethod
    def encode(cls, spec: Format, lib: Library, bits: Any) -> Hybrid:
        assert isinstance(spec, HybridFormat)
        return cls.of_rows(spec, Csr.encode(spec.rest, lib, bits))

    @property
    def order(self) -> Any:
        """The order of rows, int32 [M], new -> old, where the matrix is."""
        return self.arrays["order"]

    @property
    def tiles(self) -> int:
        """Dense tiles."""
        return self._stored - self.filling

    @property
    def filling(self) -> int:
        """Tiles of zeros that fill rows of blocks up, in Blocked-ELL."""
        return self.once("filling", lambda: int((self.arrays["idx"] < 0).sum()))

    @property
    def _stored(self) -> int:
        return prod(self.arrays["idx"].shape)

    @property
    def rest(self) -> int:
        """Entries outside of dense tiles."""
        return int(self.arrays["rest_idx"].shape[0])

    def rows(self) -> Csr:
        """The same matrix as compressed sparse rows in its own order, where it is."""
        lib, tile, arrays = self.library, self.spec.blocks.rows, self.arrays
        with lib.active():
            bits = lib.view(arrays["values"], self.spec.raw)
            place = lib.columns((bits != 0).reshape(1, -1))
            at, element = place // tile**2, place % tile**2
            starts = self.spec.starts(lib, arrays, 0, self.spec.blocks.grid(self.shape)[0])
            row = lib.fibers(starts, self._stored)[at] * tile + element // tile
            col = lib.wide(arrays["idx"]).reshape(-1)[at] * tile + element % tile
            join = lib.xp.concatenate
            old = lib.cast(self.order, s64)[join([row, lib.fibers(lib.wide(arrays["rest_ptr"]), self.rest)])]
            keys = old * self.shape[1] + join([col, lib.wide(arrays["rest_idx"])])
            sort = lib.order(keys)
            values = join([bits[place], lib.view(arrays["rest_values"], self.spec.raw)])[sort]
            ptr = pointers(lib, old, self.shape[0])
            idx = keys[sort] % self.shape[1]
            return Csr.of(self.kind, lib, self.shape, ptr, idx, lib.view(values, self.kind))

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.csr_array`` of float32 values; explicit zeros outside of dense tiles stay entries."""
        return self.rows().to_scipy()

    def stats(self) -> Stats:
        """Those of the matrix with its rows as they were given."""
        return self.once("stats", lambda: self.rows().stats())

    def plan(self, columns: int | None = None, device: str | Path | DeviceProfile = "auto") -> Plan:
        """What the order does to the matrix, what is stored of it, and what the cost model expects of products with
        ``columns`` columns (by default those that the matrix was made for) on a device, as ``compile`` takes it.

        A string, which ``save`` writes as text or as a picture of where nonzeros and dense tiles lie, before and after.
        """
        with located(user_loc()):
            said = dict(self.spec.options)
            count = said["columns"] if columns is None else positive(columns, "columns", FormatError)
            tile, delta, matrix = self.spec.blocks.rows, said["delta"], self.rows()
            rows = Rows.of(matrix.to_host())
            order = self.library.to_host(self.order, s32).astype(np.int64)
            before, after = both(rows, encoded(rows, tile), order, delta)
            try:
                expected = str(_model(self.format).expected(self, count, device))
            except FormatError as e:
                expected = e.message
            area = self.tiles * tile**2
            lines = (
                f"{self!r}",
                f"rows in the order of {said['method']}, alpha {said['alpha']:g}",
                table(rows.nnz, tile, delta, before, after),
                f"{self.tiles:,} dense tiles of {tile}x{tile}: {self.nnz - self.rest:,} nonzeros, "
                f"{(self.nnz - self.rest) / max(1, area):.1%} of their elements; the rest: {self.rest:,} nonzeros"
                + (f"; {self.filling:,} tiles of zeros fill rows of blocks up" if self.filling else ""),
                expected,
            )
            return Plan("\n".join(lines), partial(svg, rows, order, tile, delta))


def _model(format: str) -> Any:
    """What knows the cost of products, which are made of formats: so it is found when it is asked for."""
    return families("spmm")[format]
