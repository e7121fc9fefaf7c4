"""Which loops of passes go through a CUDA graph: long ones of passes shorter than their launches."""

from __future__ import annotations

#: A graph pays from this many passes on, for passes that are predicted to take at most this many seconds.
GRAPH_PASSES, GRAPH_SECONDS = 8, 20e-6
#: Passes in a graph at most: what is left over is launched one by one.
GRAPH_CHUNK = 64
