"""``sparsegen calibrate``: measures a GPU with micro-kernels made through the IR, and writes its profile."""
