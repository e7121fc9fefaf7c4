"""The dataflow graph of a tile kernel: its edges, and the fewest meetings that cut them."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparsegen.ir import tile as t
from sparsegen.ir.dataflow import RAW, WAR, WAW, Event, dataflow, events, meetings, readers
from sparsegen.ir.expr import Const
from sparsegen.ir.parse import parse_op
from sparsegen.ir.types import Buffer, f64

TILES = [Buffer(name, f64, 8, "shared") for name in "abc"]
LOOP = """\
tile.func symbol="k" params=[@u: global f64[64] align=16, @out: global f64[64] align=16] blocks=1 threads=32 {
  tile.alloc buf=@a: shared f64[16] align=16 layout=layout<[r<2, c<4] -> r * 4 + c> slots=2
  tile.for_tiles at=[%y: s32[0,7], %x: s32[0,7]] end=[%y_end: s32[0,8], %x_end: s32[0,8]] number=%number: s32[0,3] \
turn=%turn: s32[0,3] boxes=[[[0, 8], [0, 8]]] size=[2, 4] stride=STRIDE {
    tile.wait pending=0
    tile.copy dst=@out src=@a at=[%y, %x] rows=2 cols=4 src_map=layout<[r<2, c<4] -> r * 4 + c> \
end=[%y_end, %x_end] grid=Grid(extent=[8, 8], pitch=8)
    tile.prefetch distance=1 {
      tile.copy dst=@a src=@u at=[%y, %x] rows=2 cols=4 maps=[layout<[r<2, c<4] -> r * 4 + c>] slot=%turn % 2 \
grid=Grid(extent=[8, 8], pitch=8) mode="async"
    }
  }
}
"""
tiles = st.frozensets(st.sampled_from(TILES), max_size=2)


@st.composite
def runs(draw: st.DrawFn) -> list[Event]:
    """A few events that read and write tiles in some order."""

    def event(i: int) -> Event:
        writes = draw(tiles)
        return Event(
            t.Wait(pending=0),
            (i,),
            draw(tiles),
            writes,
            draw(st.sampled_from([writes, frozenset()])),
            draw(st.booleans()),
        )

    return [event(i) for i in range(draw(st.integers(0, 7)))]


@settings(max_examples=150, deadline=None)
@given(runs())
def test_meetings_cut_every_edge_and_no_fewer_do(nodes: list[Event]) -> None:
    graph = dataflow(nodes)
    edges = {(i, j) for i, j, _ in graph.edges(keys=True)}
    assert all(i < j for i, j in edges)

    def cut(by: set[int]) -> bool:
        return all(any(i < m <= j for m in by) for i, j in edges)

    found = meetings(graph)
    assert cut(found)
    assert not any(cut(set(some)) for some in combinations(range(len(nodes)), max(0, len(found) - 1))) or not found


def test_why_an_event_comes_after_another() -> None:
    a, b, _ = TILES
    zero = t.Zero(dst=a, table=b, slot=Const(0))
    fill = Event(zero, (0,), frozenset(), frozenset({a}), frozenset({a}), True)
    write = Event(zero, (1,), frozenset(), frozenset({a}), frozenset({a}), False)
    use = Event(zero, (2,), frozenset({a}), frozenset(), frozenset(), False)
    found = {(i, j, why) for i, j, why in dataflow([fill, write, use, write]).edges(keys=True)}
    assert found == {(0, 2, RAW), (1, 2, RAW), (2, 3, WAR), (1, 3, WAW)}, "padding waits for readers only"
    assert readers(dataflow([fill, write, use, write]), [0]) == [2]


def test_a_prefetch_is_read_after_the_wait_of_the_next_turn() -> None:
    nodes = events(parse_op(LOOP.replace("STRIDE", "4")).body)  # type: ignore[attr-defined]
    names = [event.op.name for event in nodes]
    assert names == ["tile.alloc", *["tile.wait", "tile.copy", "tile.prefetch"] * 2]
    why = {(i, j, way) for i, j, way in dataflow(nodes).edges(keys=True)}
    assert (1, 2, RAW) in why and (2, 3, WAR) in why and (3, 5, RAW) not in why and (4, 5, RAW) in why
    assert meetings(dataflow(nodes)) == {2, 3, 5, 6}
    assert len(events(parse_op(LOOP.replace("STRIDE", "0")).body)) == 4  # type: ignore[attr-defined]
