"""Sparse products: a compressed matrix times a few dense columns, and their way through the compiler.

``y = activation(scale * (W @ x) + bias) + residual``, W in one of :mod:`sparsegen.formats`.  Its op is
``ir/op_spmm.py``, its pass ``ir/passes/bitmap.py``; from the tile level on it goes the way of stencils.

``product``: what is computed.  ``schedule``, ``geometry`` and ``cost``: what can be chosen, what that means in numbers,
and what it costs.  ``compile``: the choice.  ``pipelines``: the passes.  ``arguments``: which arrays a call takes.
``host``, ``cuda`` and ``dense``: how the back ends run it; ``weights``: where its matrix lies; ``fast``: the short way
of a call.  ``kernel``, with ``explain`` and ``bench``: what the user holds.
"""
