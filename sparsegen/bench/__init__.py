"""Measurements: one harness for all, suites of cases, and the tables made from their results.

``lab`` has the GPU and its clock, ``harness`` compiles, measures and keeps the rows of any suite, ``naive`` holds the
independent kernel that stencils are compared with, ``floors`` runs programs written by hand beside it.  ``suites``,
``stencils`` and ``ablation`` say which stencils are measured, ``stencil_run`` how.  ``products`` measures those of any
weight format; ``bitmaps`` and ``graphs`` say which, ``bitmap_run`` and ``csr_run`` add the library of their format.
``beside`` has what stands beside floors and libraries: ``magicube`` and ``unstructured``, whose matrices ``mixture``
makes and whose choices ``chosen`` sums up.  ``regret`` tries the cost model on random problems.  ``command`` is the
command line's part; ``report`` writes and renders the JSON, with the views of ``tables`` made of ``cells``;
``picture``, ``scatter`` and ``compression`` draw.
"""
