"""Measurements: one harness for all, suites of cases, and the tables made from their results.

``naive`` holds the independent kernel that results are compared with, ``harness`` times and checks, ``floors`` runs
programs written by hand beside it.  ``suites`` and ``stencils`` say what is measured, ``ablation`` is the paper's
ablation, ``command`` the command line's part.  ``report`` writes and renders the JSON, with the views of ``tables``
made of ``cells``; ``picture`` draws it.  Of sparse products: ``bitmaps`` says what,
``bitmap_run`` measures it, ``bitmap_tables`` shows it, and ``compression`` draws how small formats are.
"""
