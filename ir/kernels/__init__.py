"""Kernels: how each family does an op, in tiles; one file a family, each a pass from the op level to the tile level."""
