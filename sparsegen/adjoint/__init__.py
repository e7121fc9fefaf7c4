"""Adjoints of linear time steps: the transposed map, as a stencil or an update of its own.

``linear``: the linear part of what a step does, ``algebra``: its coefficients as formulas.  ``transpose``: the step
that is its transpose, and the arrays at borders that this needs.  ``derivative``: what a step changes with its
coefficients.  ``kernel``: ``Kernel.adjoint``.
"""
