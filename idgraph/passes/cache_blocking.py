"""Transposes on a core: blocks of rows and columns, for what is read along another axis than it is written.

A column of the matrix that is read has each element in a cache line of its own. A block of rows takes a few columns at
a time, so that the lines which its first row has brought are still near when its other rows read the rest of them; the
columns are few because lines that lie a power of two apart have only one set of a cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from idgraph.arith import Expr, as_expr, minimum, simplify, symbol
from idgraph.arith.solve import coefficients
from idgraph.ir import item_size
from idgraph.ir.device import current_device
from idgraph.kernel.def_use import substitute_indices
from idgraph.kernel.ir import Load, Loop, Stmt, Store, walk

WAYS: Final = 8  # lines of one set of the nearest cache
COLUMNS: Final = 2 * WAYS  # of a block
LEAST: Final = 16  # rows and columns that are worth blocks
AT: Final = "at_once"
Body = tuple[Stmt, ...]


def cache_block_transpose(
    chain: Sequence[Loop], at: Callable[[Expr], Body], rows: int, length: int, run: int
) -> Loop | None:
    """Loops over blocks of ``rows`` rows of ``length`` elements, of which ``at`` gives the statements by number.

    ``run`` rows follow each other without a division. None where no array is read along a column.
    """
    if min(run, length) < LEAST:
        return None
    first, last = chain[0].var, chain[-1].var
    part, row = symbol(first, 0, rows // run - 1), symbol(f"{first}_{AT}", 0, run - 1)
    column = symbol(last, 0, length - 1)
    body = at((part * run + row) * length + column)
    turned = [s for s in walk(body) if isinstance(s, Load) and _is_row_neighbour(s.address, row, column)]
    if all(_column_fits_cache(s, column, length) for s in turned) or any(
        isinstance(s, Store) and _stride_in(s.address, column) != 1 for s in walk(body)
    ):
        return None
    tall = min(run, max(COLUMNS, current_device("cpu").line // min(item_size(s.buffer.dtype) for s in turned)))
    blocks = -(-run // tall)
    outer = symbol(first, 0, rows // run * blocks - 1)
    begin = simplify(outer % blocks * tall)
    lanes = as_expr(tall) if run % tall == 0 else simplify(minimum(as_expr(tall), run - begin))
    inside, step = symbol(f"{first}_{AT}", 0, tall - 1), symbol(f"{last}_{AT}", 0, length // COLUMNS - 1)

    def placed(start: Expr, count: int) -> Loop:
        lane = symbol(last, 0, count - 1)
        to = {part: simplify(outer // blocks), row: begin + inside, column: start + lane}
        moved = substitute_indices(body, to)
        columns = Loop(last, as_expr(count), "serial", moved, chain[-1].note)
        return Loop(f"{first}_{AT}", lanes, "serial", (columns,), chain[0].note)

    made: list[Stmt] = [Loop(f"{last}_{AT}", as_expr(length // COLUMNS), "serial", (placed(step * COLUMNS, COLUMNS),))]
    if length % COLUMNS:
        made.append(placed(as_expr(length - length % COLUMNS), length % COLUMNS))
    return Loop(first, as_expr(rows // run * blocks), chain[0].parallel, tuple(made), chain[0].note)


def run_of(lengths: Sequence[int], rows: int) -> int:
    """Rows that follow each other without a division whose results change after so many ``lengths`` of rows."""
    return math.gcd(rows, *lengths)


def is_transposed(chain: Sequence[Loop]) -> bool:
    """Whether the lanes of the innermost loop read an array far apart, or not evenly."""
    lane = symbol(chain[-1].var, 0, simplify(chain[-1].extent - 1))
    steps = [_stride_in(s.address, lane) for s in walk(chain[-1].body) if isinstance(s, Load)]
    return any(n is None or abs(n) >= LEAST for n in steps)


def _is_row_neighbour(address: Expr, row: Expr, column: Expr) -> bool:
    """Whether neighbours are those of neighbouring rows, and not of columns."""
    step = _stride_in(address, column)
    return abs(_stride_in(address, row) or 0) == 1 and step is not None and abs(step) >= LEAST


def _column_fits_cache(s: Load, column: Expr, length: int) -> bool:
    """Whether the lines of a whole column fit into half of the nearest cache: lines apart by a multiple of a power
    of two are in few of its sets."""
    cpu = current_device("cpu")
    nearest = cpu.levels[0][0] if cpu.levels else cpu.cache
    sets = max(1, nearest // cpu.processors // (WAYS * cpu.line))
    apart = abs(_stride_in(s.address, column) or 1) * item_size(s.buffer.dtype)
    used = sets // math.gcd(apart // cpu.line, sets) if apart % cpu.line == 0 else sets
    return length <= used * WAYS // 2


def _stride_in(e: Expr, var: Expr) -> int | None:
    """How far an index goes at each step of a variable; None where that varies."""
    found = coefficients(e, (var,))
    return int(found[0]) if found is not None and found[0].is_const else None
