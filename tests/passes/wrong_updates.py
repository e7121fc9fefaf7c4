"""What is wrong about each tile op of updates of general formulas: see ``wrong_fields``."""

from __future__ import annotations

from typing import Any

from sparsegen.ir import tile_held as tla
from sparsegen.ir import tile_layer_levels as tll
from sparsegen.ir import tile_layers as tle
from sparsegen.ir import tile_march as tma
from sparsegen.ir import tile_sites as tst
from sparsegen.ir import tile_update as tu
from sparsegen.ir import tile_walk as tw
from sparsegen.ir.expr import Value
from sparsegen.ir.grid import Grid
from sparsegen.ir.node import Op
from sparsegen.ir.types import Buffer, f32, f64, s32

#: Programs whose formula has no scalar, and the tile op that works it out.
FORMULAS: dict[str, type[Op]] = {
    "update": tu.Update, "stream_update": tu.UpdateLevels, "column_update": tle.UpdateLayer,
    "column_levels": tll.UpdateLayers, "resident_update": tla.HeldSteps, "march": tma.March,
}  # fmt: skip

PERIODIC = ((("periodic", 0.0),) * 2,) * 2

WRONG: list[tuple[str, type[Op], dict[str, Any], str]] = [
    ("update", tu.Update, {"threads": (4, 32)}, "128 threads work"),
    ("update", tu.Update, {"results": (999,)}, "a result is none of"),
    *(
        (program, op, {"code": (("scalar", "dt"),), "results": (0,)}, "1 scalars of a formula, none given")
        for program, op in FORMULAS.items()
    ),
    ("stream_update", tu.UpdateLevels, {"results": (999,)}, "result 999 of the formula is no number"),
    ("stream_update", tu.UpdateLevels, {"count": 4}, "but 32 are meant"),
    ("stream_update", tu.UpdateLevels, {"stages": 9}, "slots of all warps take"),
    ("stream_update", tu.UpdateLevels, {"rings": ()}, "0 rings for 2 arrays that wait"),
    ("stream_update", tu.UpdateLevels, {"olds": ()}, "0 rows for 1 older results"),
    ("stream_update", tu.UpdateLevels, {"sides": (PERIODIC,)}, "1 boundaries of 1 fields"),
    ("stream_update", tw.Fetch, {"grid": Grid((56, 128), 136, PERIODIC, 4, 4)}, "are those of layers"),
    ("stream_update", tw.Emit, {"grid": Grid((56, 128), 136, ghosts=4, lead=4)}, "are those of layers"),
    ("column_ghosts", tle.FetchLayer, {"rim": 4}, "6 columns around a tile, where rows have 2 ghosts"),
    ("copied", tu.CopyField, {"lines": 0}, "0 rows of a thread"),
    ("copied", tu.CopyField, {"grids": (Grid((37, 71), 71), Grid((37, 72), 80))}, "is copied to one of"),
    ("copied", tu.CopyField, {"grids": (Grid((20, 71), 80, ghosts=4, lead=4),) * 2}, "not of other ghosts"),
    (
        "copied",
        tu.CopyField,
        {"grids": (Grid((37, 71), 71), Grid((37, 71), 78, ghosts=4, lead=4))},
        "4 ghosts at both ends, can",
    ),
    (
        "copied",
        tu.CopyField,
        {"grids": (Grid((9, 7), 7), Grid((9, 7), 96, ghosts=4, lead=4))},
        "4 ghosts at both ends of 7",
    ),
    ("copied", tu.CopyField, {"grids": (Grid((9, 71), 71), Grid((9, 71), 96, ghosts=4, lead=3))}, "have room for 3"),
    ("column_update", tle.FetchLayer, {"vector": 3}, "3 cells at once are neither one nor a piece"),
    ("column_update", tle.FetchLayer, {"cols": 63}, "63 columns are no whole pieces"),
    ("column_update", tle.FetchLayer, {"stages": 99}, "99 planes take"),
    ("column_update", tle.FetchOwn, {"stages": 99}, "99 slots of all threads take"),
    ("column_update", tle.FetchOwn, {"vector": 3}, "3 cells at once are neither one nor a piece"),
    ("column_update", tle.UpdateLayer, {"rings": ()}, "0 rings of 3 arrays"),
    ("column_update", tle.UpdateLayer, {"kept": ()}, "0 arrays of registers for 1 arrays"),
    ("column_update", tle.UpdateLayer, {"lines": 4}, "are meant|take"),
    ("column_update", tle.UpdateLayer, {"results": (999,)}, "result 999 of the formula is no number"),
    ("march", tma.March, {"keep": ()}, "results, kept cells and arrays of 1 fields"),
    ("march", tma.March, {"vectors": (1,)}, "4 fields of 4 arrays"),
    ("march", tma.March, {"vectors": (1, 1, 1, 3)}, "3 cells at once of rows 70 apart"),
    ("march", tma.March, {"results": (999,)}, "result 999 of the formula is no number"),
    ("march", tma.March, {"threads": (4, 32)}, "128 threads work"),
    ("march", tma.March, {"threads": (4, 16)}, "16 threads of a row are no whole warps"),
    ("march", tma.March, {"reads": ()}, "0 reads of 3 arrays"),
    ("march", tma.March, {"kept": ()}, "arrays and registers of 3 reads"),
    ("march", tma.March, {"lines": 4}, "are meant"),
    ("march", tma.March, {"grids": (Grid((9, 20, 70), 80, ghosts=4, lead=4),) * 4}, "are those of layers|takes"),
    ("column_levels", tll.UpdateLayers, {"count": 1}, "1 step: tile.update_layer makes one"),
    ("column_levels", tll.UpdateLayers, {"results": (999,)}, "result 999 of the formula is no number"),
    ("column_levels", tll.UpdateLayers, {"outs": ()}, "0 arrays for 2 levels that are written"),
    ("column_levels", tll.UpdateLayers, {"rings": ()}, "0 rings of 3 that come in"),
    ("column_levels", tll.UpdateLayers, {"made": ()}, "0 rings of 2 that are made"),
    ("column_levels", tll.UpdateLayers, {"stages": 9}, "planes take"),
    ("column_levels", tll.UpdateLayers, {"kept": ()}, "0 arrays of registers for 3 times"),
    ("column_levels", tll.UpdateLayers, {"sides": (PERIODIC,) * 2}, "2 boundaries of 1 fields"),
    ("column_levels", tll.UpdateLayers, {"radius": (1, 1)}, "radius of 2 axes"),
    ("resident_update", tla.Window, {"low": ()}, "windows of 0 axes"),
    ("resident_update", tla.Rounds, {"every": 0}, "0 steps a round"),
    ("resident_update", tla.Rounds, {"every": 3}, "ends at 2 of 3 steps"),
    ("resident_update", tla.LoadHeld, {"share": (1, 99, 2)}, "10 registers, but 198 are meant"),
    ("resident_update", tla.LoadHeld, {"share": (1, 0, 2)}, "a thread has no"),
    ("resident_update", tla.LoadHeld, {"first": ()}, "first of 0 axes"),
    ("resident_update", tla.StoreHeld, {"grid": Grid((1, 370, 70), 70)}, "a field of"),
    ("resident_update", tla.Exchange, {"extent": 9999}, "pairs of two rounds, 2 arrays and 9999 cells"),
    ("resident_update", tla.Exchange, {"degree": 0}, "a bank-conflict degree of 0"),
    ("resident_lines", tla.ExchangeLines, {"extent": (9, 6, 64)}, "lines of 64 cells are not 1 of each lane"),
    ("resident_lines", tla.ExchangeLines, {"first": ()}, "of 0 axes"),
    ("resident_lines", tla.ExchangeLines, {"extent": (90, 6, 32)}, "records of two rounds, of 540 lines"),
    ("resident_lines", tla.ExchangeLines, {"taken": ((0, 9),)}, "a thread has no"),
    ("resident_cells", tla.ExchangeCells, {"extent": (1, 37, 999)}, "pairs of two rounds"),
    ("resident_cells", tla.ExchangeCells, {"first": ()}, "of 0 axes"),
    ("resident_cells", tla.ExchangeCells, {"at_once": 0}, "asks for 0 cells"),
    ("resident_update", tla.HeldSteps, {"results": ()}, "0 results of 1 fields"),
    ("resident_update", tla.HeldSteps, {"results": (999,)}, "result 999 of the formula is no number"),
    ("resident_update", tla.HeldSteps, {"held": ()}, "0 windows of 3 arrays"),
    (
        "resident_update",
        tla.HeldSteps,
        {"code": (("scalar", "dt"),), "results": (0,), "scalars": Buffer("steps", s32, 1, "param")},
        "@steps must be in global memory",
    ),
    ("resident_update", tla.HeldSteps, {"keep": (0, 1, 3)}, "cells away reach beyond the neighbouring thread"),
    ("resident_update", tla.HeldSteps, {"closed": (True, True, False)}, "one window is not all of axis 1"),
    ("resident_update", tla.HeldSteps, {"sides": (PERIODIC,)}, "1 boundaries of 1 fields"),
    ("resident_update", tla.HeldSteps, {"number": Value("number", s32, 0, 1)}, "what runs before or after a step"),
    ("sites", tst.OwnEntries, {"begin": Buffer("shot_places", s32, 12, "global")}, "and one: @shot_places has 12"),
    ("sites", tst.OwnEntries, {"span": Buffer("rows_first", s32, 1, "reg")}, "1 registers, but 2 are meant"),
    ("sites", tst.SeenCells, {"begin": Buffer("shot_places", s32, 12, "global")}, "@shot_places has 12"),
    ("sites", tst.SeenCells, {"seen": Buffer("rows_first", s32, 1, "reg")}, "@rows_first has bits"),
    ("sites", tst.FetchSignal, {"count": 2}, "2 signals of"),
    ("sites", tst.FetchSignal, {"ahead": Buffer("held_u", f64, 3, "reg")}, "@held_u"),
    ("sites", tst.AddSources, {"count": 2}, "2 signals of"),
    ("sites", tst.AddSources, {"places": Buffer("facts", s32, 60, "global")}, "60 places of 12 entries"),
    ("sites", tst.RecordCells, {"count": 99}, "99 cells of"),
    ("sites", tst.RecordCells, {"cells": Buffer("rows", f32, 10, "global")}, "@rows"),
    ("resident_sites", tst.RecordCells, {"count": 4}, "4 cells of 1 steps, @rows_rows has 5"),
    ("resident_sites", tst.Interpolate, {"steps": Buffer("whose", s32, 8, "global")}, "@whose is no number of steps"),
    ("resident_sites", tla.Rounds, {"total": Value("total", s32, 0, 9)}, "%total may be no steps"),
    ("stored_sites", tst.AddToCells, {"begin": Buffer("cells", s32, 4, "global")}, "the entries of 4 cells begin"),
    ("stored_sites", tst.AddToCells, {"weights": Buffer("signals", f64, 1, "global")}, "1 weights of 4 entries"),
    ("sites", tst.Interpolate, {"count": 3}, "has no rows of 3"),
    ("sites", tst.Interpolate, {"around": 3}, "3 cells of 2 receivers"),
    ("sites", tst.Interpolate, {"seen": 0}, "2 receivers of 4 of 0 cells"),
    ("sites", tst.Interpolate, {"seen": 4}, "4 cells of"),
    ("sites", tst.Interpolate, {"count": 4}, "5 cells of 1 steps"),
]
