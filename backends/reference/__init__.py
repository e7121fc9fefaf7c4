"""What every op means, in plain NumPy: no lowering, no schedule, nothing shared with the code it judges."""
