"""Rows: loops over the columns of one row as one sweep, sweeps joined so that a row is read once, cut into chunks.

The data's way: `sweep` (what a loop over columns does to one column), `join` (sweeps side by side become one, sums that
wait for a maximum follow it as it grows), `chunks` (each thread takes aligned pieces of 16 bytes).
"""

from idgraph.passes.rows.kernels import with_rows

__all__ = ["with_rows"]
