"""The CPU target: names that kernels call, compilation by numba, launches, and vector mathematics."""
