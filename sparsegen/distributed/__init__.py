"""Kernels over several GPUs: the domain split over ranks, halos exchanged between the passes."""
