"""General updates: any formula of several fields, time levels and coefficients, and their way through the compiler.

A stencil is one field times constant weights, and families of schedules reshape that product.  An update
(:class:`sparsegen.Update`) keeps its formula: it has no weights to convolve or to put into matrices, so there is one
family, ``direct``, on the CUDA cores, and each launch is one time step.  Its op is ``ir/op_update.py``, its one pass
``ir/passes/pointwise.py``; from the tile level on it goes the way of stencils.

``schedule`` and ``cost``: what can be chosen, and what it costs.  ``compile``: the choice.  ``pipelines``: the passes.
``plan``: the time loop, in which levels go round in rings of arrays.  ``host`` and ``cuda``: how the back ends run it.
``kernel``, with ``explain`` and ``bench``: what the user holds.
"""
