"""Families of schedules, a module each, which registers its family (:mod:`sparsegen.registry` finds them)."""
