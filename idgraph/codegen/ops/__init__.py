"""What each operation computes: one table of formulas, and the functions it names for scalars, arrays and numba."""
