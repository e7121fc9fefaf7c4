"""Back ends: the CUDA printer and launcher, the emulator that defines the warp level, and the NumPy reference."""

if __name__ != "sparsegen.backends":
    raise ImportError(
        "import this package as 'sparsegen.backends': its folder only stands beside sparsegen/ in the repository"
    )
