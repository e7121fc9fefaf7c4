"""Hand-built warp programs that prove what the warp level can say, each with its meaning in plain NumPy."""
