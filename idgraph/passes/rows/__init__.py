"""Rows: loops over the columns of one row as one sweep, sweeps joined so that a row is read once, cut into chunks.

Stages: `sweep` (the body of a loop over columns, at one column), `join` (neighbouring sweeps become one; sums that
depend on a maximum are rescaled as it grows), `chunks` (each thread takes aligned pieces of 16 bytes).
"""

from idgraph.passes.rows.row_kernels import with_rows

__all__ = ["with_rows"]
