"""Numbers: the arithmetic of tiles, halos and rings, once for each family; kernels, registers and costs import it.

Whole numbers in, whole numbers out: nothing here knows a device, a schedule's words or a buffer.
"""
