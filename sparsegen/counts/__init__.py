"""Exact counts of a program's launches, for any size: one unit of each class is emulated, times how many there are."""

from sparsegen.counts.launch import LaunchCounts, of_program

__all__ = ["LaunchCounts", "of_program"]
