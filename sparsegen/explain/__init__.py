"""``k.explain()``: one page for all kinds of kernels, as text, for ``rich``, as JSON and as a roofline picture.

``page``: what a page holds; its dataclasses are the JSON.  ``stencil`` (with ``changes`` and ``paper``) makes that of a
stencil's kernel; those of products and updates are made beside them.  ``sections`` turns a page into titled rows, which
``text`` and ``richly`` show; ``roofline`` has its numbers for ``picture``; ``beside`` compares devices.
"""
