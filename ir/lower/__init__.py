"""Tile level to warp level: one rule for each tile op, each in the file of its idea."""
