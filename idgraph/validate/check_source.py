"""Source of the check of one operation: one loop point in, a fault code out, for CPU and GPU; or many points at once
as arrays of NumPy. The statements are the same.

The text is made of index expressions, numbers and names of our own (``i0``, ``c0``, ``want0``); no user name enters it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from idgraph.arith import Expr, to_source
from idgraph.validate import report as faults
from idgraph.validate.concrete_access import Case, IndexLoad, ProducerSlot, Site
from idgraph.validate.oracle.views import Array
from idgraph.validate.reference_tables import Tables

PLACE: Final = 32
"""A fault is ``code + PLACE * access number``."""


class _Point:
    """Lines of a function of one point: a fault ends it."""

    head, end = "def point(%s):", ("    return 0",)

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = 1

    def text(self, e: Expr) -> str:
        return to_source(e, "numba")

    def either(self, tests: Sequence[str]) -> str:
        return " or ".join(f"({t})" for t in tests) or "False"

    def no(self, test: str) -> str:
        return f"not ({test})"

    def add(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    @contextmanager
    def where(self, test: str) -> Generator[None]:
        """The lines inside are for points where ``test`` holds."""
        self.add(f"if {test}:")
        self.indent += 1
        yield
        self.indent -= 1

    def change(self, name: str, text: str) -> None:
        """A variable that has a value becomes another one."""
        self.add(f"{name} = {text}")

    def fail(self, test: str, code: int, place: int) -> None:
        with self.where(test):
            self.add(f"return {code + PLACE * place}")

    def looked_up(self, array: str, at: Sequence[str]) -> str:
        return f"{array}[{', '.join(at) or '0'}]"  # arrays without axes have one of extent 1

    def mark(self, array: str, at: Sequence[str]) -> None:
        self.add(f"{self.looked_up(array, at)} = 1")

    def right(self) -> None:
        """Nothing is wrong with what this point writes."""
        self.add("return 1")


class _Points(_Point):
    """Lines of a function of arrays of points: ``found`` keeps their faults, and masks say where lines are for."""

    head, end = "def points(found, %s):", ()

    def __init__(self) -> None:
        super().__init__()
        self.mask, self.masks = "found.every", 0

    def text(self, e: Expr) -> str:
        return to_source(e, "numpy")

    def either(self, tests: Sequence[str]) -> str:
        return " | ".join(f"({t})" for t in tests) or "False"

    def no(self, test: str) -> str:
        return f"np.logical_not({test})"

    @contextmanager
    def where(self, test: str) -> Generator[None]:
        outside, self.masks = self.mask, self.masks + 1
        self.add(f"m{self.masks} = {outside} & ({test})")
        self.mask = f"m{self.masks}"
        yield
        self.mask = outside

    def change(self, name: str, text: str) -> None:
        self.add(f"{name} = np.where({self.mask}, {text}, {name})")

    def fail(self, test: str, code: int, place: int) -> None:
        self.add(f"found.fault({self.mask} & ({test}), {code}, {place})")

    def looked_up(self, array: str, at: Sequence[str]) -> str:
        return f"found.at({', '.join([array, *at])})"

    def mark(self, array: str, at: Sequence[str]) -> None:
        self.add(f"found.mark({', '.join([self.mask, array, *at])})")

    def right(self) -> None:
        self.add(f"found.writes({self.mask})")


def _outside(b: _Point, names: Sequence[str], shape: Sequence[int]) -> str:
    return b.either([t for c, n in zip(names, shape, strict=True) for t in (f"{c} < 0", f"{c} >= {n}")])


def row_major_source(names: Sequence[str], shape: Sequence[int]) -> str:
    """The number of an element in row-major order, as text."""
    out = ""
    for c, n in zip(names, shape, strict=True):
        out = f"({out}) * {n} + {c}" if out else c
    return out or "0"


def _expected_address(b: _Point, site: Site, names: Sequence[str]) -> str:
    """Text of the address that the layout gives an element; lines before it are added to ``b``."""
    if site.layout.strides is None:
        for p, name in enumerate(names):
            b.add(f"x{p} = {name}")
        for line in site.layout.formula:
            b.add(line)
        return "address"
    terms = [f"{c} * {s}" for c, s in zip(names, site.layout.strides, strict=True)]
    return " + ".join([str(site.layout.offset), *terms])


def memory_order(table: Array) -> tuple[int, ...]:
    """The axes of a table as they lie in memory, where a transposition makes it contiguous; else as they are."""
    order = tuple(sorted(range(table.ndim), key=lambda p: -table.strides[p]))
    return order if table.transpose(order).flags.c_contiguous else tuple(range(table.ndim))


def _looked_up(b: _Point, name: str, table: Array, at: Sequence[str]) -> str:
    return b.looked_up(name, [at[p] for p in memory_order(table)])


def table_names(case: Case, tables: Tables) -> list[str]:
    """Array parameters of the point function, in order."""
    names = ["seen", "terms"]
    for k in range(len(case.reads)):
        names.append(f"want{k}")
        if tables.allowed[k] is not None:
            names.append(f"free{k}")
    return names + [f"value{n}" for n in range(len(index_names(case)))]


def index_names(case: Case) -> list[str]:
    """Index tensors the operation loads from, in order."""
    return list(dict.fromkeys(load.tensor.name for s in case.reads for load in s.loads))


def point_source(case: Case, tables: Tables, *, arrays: bool = False) -> str:
    """``def point(loop variables, arrays) -> code``: 0 no access, 1 all right, else a fault; or, with ``arrays``, ``def
    points(found, loop variables, arrays)`` of many points at once."""
    b = _Points() if arrays else _Point()
    w = case.write
    at = [f"c{p}" for p in range(len(w.coordinates))]
    b.add(f"happens = {b.text(w.predicate)}")
    with b.where("happens"):
        for c, x in zip(at, w.coordinates, strict=True):
            b.add(f"{c} = {b.text(x)}")
        b.fail(_outside(b, at, w.shape), faults.OUTSIDE_WRITE, 0)
        kept = [at[p] for p in w.kept]
        b.fail(f"{b.text(w.address)} != {_expected_address(b, w, kept)}", faults.ADDRESS, 0)
        if case.reduced:
            for c, x in zip(kept, case.settled, strict=True):
                b.fail(f"{c} != {b.text(x)}", faults.SPREAD, 0)
        b.mark("seen", kept)
        if tables.terms is not None:
            b.mark("terms", [_outer(case), _term(case, at)])
        for k, site in enumerate(case.reads):
            _emit_read_check(b, case, site, k, at, tables)
        b.right()
    with b.where(b.no("happens")):
        for site in case.reads:
            # Where nothing is written nothing may be read, whatever is loaded.
            b.fail(b.text(site.unloaded), faults.UNWRITTEN, site.number)
        b.add("pass")
    variables = [name for name, _ in case.loops]
    return "\n".join([b.head % ", ".join([*variables, *table_names(case, tables)]), *b.lines, *b.end])


def _outer(case: Case) -> str:
    kept = [(name, n) for j, (name, n) in enumerate(case.loops) if j not in case.reduced]
    return row_major_source([name for name, _ in kept], [n for _, n in kept])


def _term(case: Case, at: Sequence[str]) -> str:
    folded = [p for p in range(len(at)) if p not in case.write.kept]
    return row_major_source([at[p] for p in folded], [case.write.shape[p] for p in folded])


def _emit_read_check(b: _Point, case: Case, site: Site, k: int, at: Sequence[str], tables: Tables) -> None:
    place, free = site.number, tables.allowed[k]
    indices = index_names(case)
    for load in site.loads:
        _load(b, load, f"value{indices.index(load.tensor.name)}", place)
    b.add(f"want = {_looked_up(b, f'want{k}', tables.wanted[k], at)}")
    b.add(f"does = {b.text(site.predicate)}")
    with b.where("does"):
        for bound in site.load_bounds:
            b.fail(b.no(b.text(bound)), faults.LOAD_BOUNDS, place)
        if free is None:
            b.fail("want < 0", faults.LOOSE, place)
        mine = [f"r{k}_{p}" for p in range(len(site.coordinates))]
        for r, x in zip(mine, site.coordinates, strict=True):
            b.add(f"{r} = {b.text(x)}")
        b.fail(_outside(b, mine, site.shape), faults.OUTSIDE_READ, place)
        b.add(f"element = {row_major_source(mine, site.shape)}")
        if free is not None:
            with b.where("want < 0"):
                b.change("want", _looked_up(b, f"free{k}", free, at))
                b.fail("want < 0", faults.LOOSE, place)
        b.fail("element != want", faults.ELEMENT, place)
        b.fail(f"{b.text(site.address)} != {_expected_address(b, site, mine)}", faults.ADDRESS, place)
        if site.slot is not None:
            _slot(b, site.slot, mine, place)
    with b.where(b.no("does")):
        b.fail("want >= 0", faults.STRICT, place)


def _load(b: _Point, load: IndexLoad, values: str, place: int) -> None:
    names = [f"{load.name}_{p}" for p in range(len(load.coordinates))]
    for c, x in zip(names, load.coordinates, strict=True):
        b.add(f"{c} = {b.text(x)}")
    b.fail(_outside(b, names, load.shape), faults.LOAD_RANGE, place)
    b.add(f"{load.name} = {b.looked_up(values, names)}")


def _slot(b: _Point, slot: ProducerSlot, mine: Sequence[str], place: int) -> None:
    for x, extent in slot.places:
        text = b.text(x)
        b.fail(b.either([f"{text} < 0", f"{text} >= {extent}"]), faults.SLOT_RANGE, place)
    b.fail(b.no(b.text(slot.when)), faults.SLOT_EMPTY, place)
    for r, x in zip(mine, slot.made, strict=True):
        b.fail(f"{b.text(x)} != {r}", faults.SLOT_ELEMENT, place)


def split_loop(case: Case, parts: int) -> int:
    """The loop to divide among threads: the outermost one long enough, else the longest."""
    extents = [n for _, n in case.loops]
    for j, n in enumerate(extents):
        if n >= 4 * parts:
            return j
    return max(range(len(extents)), key=lambda j: extents[j])


def nest_source(case: Case, tables: Tables, divided: int) -> str:
    """``def nest(lo, hi, out, arrays) -> writes``: all loops, the divided one from lo to hi.

    ``out`` gets the first fault: its code (0: none), then the loop variables.
    """
    names = table_names(case, tables)
    lines = [f"def nest(lo, hi, out, {', '.join(names)}):", "    writes = 0"]
    pad = "    "
    for j, (name, n) in enumerate(case.loops):
        lines.append(f"{pad}for {name} in range({'lo, hi' if j == divided else n}):")
        pad += "    "
    variables = [name for name, _ in case.loops]
    lines += [
        f"{pad}code = point({', '.join([*variables, *names])})",
        f"{pad}if code == 1:",
        f"{pad}    writes += 1",
        f"{pad}elif code != 0:",
        f"{pad}    out[0] = code",
        *(f"{pad}    out[{j + 1}] = {name}" for j, name in enumerate(variables)),
        f"{pad}    return writes",
        "    return writes",
    ]
    return "\n".join(lines)


def grid_source(case: Case, tables: Tables) -> str:
    """``def grid(lo, hi, out, arrays)``: one thread takes points lo + thread, + threads, ... of the row-major loops.

    ``out[0]`` becomes the smallest faulty point (it starts at a number beyond all points), ``out[1]`` counts writes.
    """
    names = table_names(case, tables)
    variables = [name for name, _ in case.loops]
    lines = [
        f"def grid(lo, hi, out, {', '.join(names)}):",
        "    flat = lo + cuda.grid(1)",
        "    step = cuda.gridsize(1)",
        "    writes = 0",
        "    while flat < hi:",
        "        rest = flat",
    ]
    for name, n in reversed(case.loops):
        lines += [f"        {name} = rest % {n}", f"        rest = rest // {n}"]
    lines += [
        f"        code = point({', '.join([*variables, *names])})",
        "        if code == 1:",
        "            writes += 1",
        "        elif code != 0:",
        "            cuda.atomic.min(out, 0, flat)",
        "        flat += step",
        "    cuda.atomic.add(out, 1, writes)",
    ]
    return "\n".join(lines)
