"""The value of each operation: one table of formulas, and the functions it names for scalars, arrays and numba."""
