"""``sparsegen calibrate``: measures a GPU with micro-kernels made through the IR, and writes its profile."""

#: Device seconds of all repeats of a figure, where ``--seconds`` says nothing.
SECONDS = 0.1
