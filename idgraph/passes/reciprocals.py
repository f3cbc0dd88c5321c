"""reciprocals: several divisions by one number as one reciprocal, and products that are corrected to the quotients.

Each float32 division of a GPU tests its operands and branches to a slow form; lanes are then computed one after the
other. Quotients by a known reciprocal are as exact (`idgraph.codegen.printers.quotients`) and share one test. Those of
integers of 8 bits by a number need none: all of them are tried here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from struct import pack, unpack

from idgraph.kernel.defuse import definitions, names
from idgraph.kernel.ir import (
    BoundsCheck,
    Compute,
    Constant,
    If,
    Kernel,
    Local,
    Loop,
    Operand,
    SingleThread,
    Stmt,
    StraightLineBlock,
    walk,
)

FEWEST = 4  # divisions that are worth a reciprocal, which costs about one, and a test
SMALL = 256  # integers of 8 bits


def with_reciprocals(kernel: Kernel) -> Kernel:
    """reciprocals: divisions by one number through its reciprocal, rounded as divisions.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: float32[64] output "y"
    ...   for i < 64:
    ...     a: float32 = x[i]
    ...     b: float32 = div(a, 3)
    ...     c: float32 = div(b, 3)
    ...     d: float32 = div(c, 3)
    ...     e: float32 = div(d, 3)
    ...     y[i] = e
    ... ''')
    >>> print(with_reciprocals(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: float32[64] output "y"
      for i < 64:
        a: float32 = x[i]
        b: float32 = div_by(a, 3, 0.3333333432674408)
        c: float32 = div_by(b, 3, 0.3333333432674408)
        d: float32 = div_by(c, 3, 0.3333333432674408)
        e: float32 = div_by(d, 3, 0.3333333432674408)
        y[i] = e
    """
    if not any(_is_division(s) for s in walk(kernel.body)):
        return kernel
    taken = {n for s in walk(kernel.body) for n in names(s)}
    return replace(kernel, body=_level(kernel.body, taken))


def _level(body: Sequence[Stmt], taken: set[str]) -> tuple[Stmt, ...]:
    """The statements with divisions by reciprocals; bodies inside of them on their own."""
    known = definitions(body)
    counts = Counter(s.operands[1] for s in body if isinstance(s, Compute) and _is_division(s))
    inverses: dict[Operand, Operand] = {}
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, (Loop, If, SingleThread, StraightLineBlock, BoundsCheck)):
            made.append(replace(s, body=_level(s.body, taken)))
            continue
        if isinstance(s, Compute) and _is_division(s):
            a, by = s.operands
            if isinstance(by, Constant) and counts[by] >= FEWEST and (inverse := inverse_of(by)) is not None:
                small = _is_small(a, known) and all_right(float(by.value))
                s = replace(s, op="small_quotient" if small else "div_by", operands=(a, by, inverse))
            elif isinstance(by, Local) and counts[by] >= FEWEST:
                if by not in inverses:
                    found = Local(_fresh(f"{by.name}_inverse", taken), "float32")
                    made.append(Compute(found, "reciprocal", (by,), "float32"))
                    inverses[by] = found
                s = replace(s, op="div_by", operands=(a, by, inverses[by]))
        made.append(s)
    return tuple(made)


def _is_division(s: Stmt) -> bool:
    """A division of float32 by a variable of its own or a number."""
    if not isinstance(s, Compute) or (s.op, s.compute, s.local.dtype) != ("div", "float32", "float32"):
        return False
    by = s.operands[1]
    return isinstance(by, Constant) or (isinstance(by, Local) and by.dtype == "float32" and by.at is None)


def inverse_of(by: Constant) -> Constant | None:
    """The reciprocal of a number, as float32; None of zeros, of powers of two, whose products are quotients, and of
    what is not usual."""
    value = single(float(by.value))
    if value is None or not 2.0**-40 <= abs(value) < 2.0**40 or abs(math.frexp(value)[0]) == 0.5:
        return None
    found = nearest(1 / Fraction(value))
    return None if found is None else Constant(float(found))


def _is_small(a: Operand, known: Mapping[str, Stmt]) -> bool:
    """Whether an operand is an integer of 8 bits without a sign, as float32."""
    made = known.get(a.name) if isinstance(a, Local) else None
    if not isinstance(made, Compute) or made.op != "cast":
        return False
    (x,) = made.operands
    return isinstance(x, Local) and x.dtype == "uint8"


@cache
def all_right(by: float) -> bool:
    """Whether `small_quotient` divides each integer of 8 bits by a positive number, rounded: each is tried, exactly.

    >>> all_right(255.0), all_right(-3.0)
    (True, False)
    """
    value = single(by)
    if value is None or value <= 0:
        return False
    divisor = Fraction(value)
    step = nearest(1 / divisor)
    if step is None:
        return False
    for n in range(SMALL):
        q = nearest(n * step)
        rest = None if q is None else nearest(q * divisor - n)
        found = None if q is None or rest is None else nearest(q - rest * step)
        if found is None or found != nearest(n / divisor):
            return False
    return True


def single(value: float) -> float | None:
    """A number as float32; None where it is too large for that, or none.

    >>> single(0.1), single(1e39)
    (0.10000000149011612, None)
    """
    try:
        found: float = unpack("f", pack("f", value))[0]
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def nearest(x: Fraction) -> Fraction | None:
    """The float32 nearest to an exact number, halves to even; None outside of the normal numbers.

    >>> nearest(Fraction(1, 3)), nearest(Fraction(2) ** 200)
    (Fraction(11184811, 33554432), None)
    """
    if x == 0:
        return x
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    if not -126 <= exponent < 127:
        return None
    step = Fraction(2) ** (exponent - 23)
    return round(x / step) * step


def _fresh(name: str, taken: set[str]) -> str:
    """A name that nothing has yet."""
    found, n = name, 1
    while found in taken:
        n += 1
        found = f"{name}{n}"
    taken.add(found)
    return found
