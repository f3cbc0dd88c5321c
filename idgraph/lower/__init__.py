"""Fusion, index maps and schedule to kernels; races and barriers."""
