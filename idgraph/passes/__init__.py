"""Kernel to kernel: rows, lanes, vectors, loops over lanes, joined launches."""
