"""``k.explain()``: one page for all kinds of kernels, as text, for ``rich``, as JSON and as a roofline picture.

``page``: what a page holds; its dataclasses are the JSON.  ``kinds`` makes it, of what each kind of problem says of
itself in ``stencil`` (with ``paper``), ``update`` and ``product``.  ``sections`` turns a page into titled rows, which
``text`` and ``richly`` show; ``roofline`` has its numbers for ``picture``; ``beside`` compares devices.
"""
