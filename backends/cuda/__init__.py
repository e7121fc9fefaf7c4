"""The CUDA back end: nvcc and its cache, inspection of what it made, and two ways to launch (pycuda, cuda-bindings).

Nothing here imports a GPU library when it is imported; the runtimes do so when they are first opened.
"""
