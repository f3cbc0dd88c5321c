"""Kernel to kernel: rows, lanes, vectors, packed pairs, loops over lanes, joined launches."""
