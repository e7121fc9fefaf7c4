"""General updates: any formula of several fields, time levels and coefficients.

A stencil is one field times constant weights, and families of schedules reshape that product.  An update
(:class:`sparsegen.Update`) keeps its formula: it has no weights to convolve or to put into matrices, so there is one
family (``families/pointwise.py``), on the CUDA cores, and each launch is one time step.  Its op is
``ir/op_update.py``, its kernel ``ir/kernels/pointwise.py``.

``cost``: what a schedule costs.
"""
