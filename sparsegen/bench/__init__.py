"""Measurements: one harness for all, suites of cases, and the tables made from their results.

``naive`` holds the independent kernel that results are compared with, ``harness`` times and checks, ``suites`` says
what is measured, ``ablation`` is the paper's ablation, ``report`` writes and renders the JSON.
"""
