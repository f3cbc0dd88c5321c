"""Kernel to source for four targets, and the operations that the sources call."""
