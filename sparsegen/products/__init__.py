"""Sparse products: what is known of them in numbers, and what their schedules cost.

``y = activation(scale * (W @ x) + bias) + residual``, W in one of :mod:`sparsegen.formats`.  The op is
``ir/op_spmm.py``; the families are in :mod:`sparsegen.families.spmm`.

``product``: what the user describes.  ``geometry`` and ``cost``: the numbers and the time of schedules for bitmap
tiles.  ``ragged`` and ``csr_cost``: the same for compressed rows.  ``weights``: where a matrix's arrays
lie.  ``dense``: the product of the arrays' own library.
"""
