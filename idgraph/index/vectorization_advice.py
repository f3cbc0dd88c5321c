"""Changes that allow wider vectors: candidate changes to layout, schedule, slices or extents, each tried on a copy.

Nothing is suggested that was not applied and asked again, so a suggestion can be incomplete but not wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import lcm

from idgraph.arith import Expr
from idgraph.display import Printed
from idgraph.errors import IdGraphError
from idgraph.index.access_relation import AccessFunction
from idgraph.index.allocation import strides
from idgraph.index.vector_width import Width
from idgraph.ir import (
    AttrEdit,
    Edit,
    Fusion,
    InputEdit,
    NewSteps,
    StepEdit,
    SymbolEdit,
    Tensor,
    TensorExpr,
    clone_fusion,
)  # fmt: skip
from idgraph.ir.axis_read import Attr
from idgraph.ir.device import current_device
from idgraph.ir.protocols import axis_place

_MAX_PAIRS = 48
_MAX_CURES = 4


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change after which the access allows vectors of ``width`` elements along the same loop (or along ``loop``).

    ``keeps_result`` is True where only layout or schedule change; False where the program itself does (another slice or
    extent). ``edits`` say the change; `apply` makes the changed copy.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> a = f.input("a", shape=(8, 30))
    >>> t = f.output(a[:, :28] + 1)
    >>> read = ig.IdModel(f).access(f.exprs[0], a)
    >>> for suggestion in read.explain_vector_width("i1").suggestions():
    ...     print(suggestion)
    4 elements if the rows of a are padded to 32 elements: strides (32, 1)
    4 elements if the extent 30 of a is a multiple of 4: 32
    >>> g = read.explain_vector_width("i1").suggestions()[0].apply(f)
    >>> ig.IdModel(g).access(g.exprs[0], g["a"]).vector_width("i1")
    4
    """

    text: str
    width: int
    edits: tuple[Edit, ...] = field(repr=False)
    keeps_result: bool
    loop: str

    def apply(self, fusion: Fusion) -> Fusion:
        """A copy of ``fusion`` with the change made."""
        return clone_fusion(fusion, self.edits)

    def __str__(self) -> str:
        return f"{self.width} element{'s' if self.width > 1 else ''} if {self.text}"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class VectorWidth(Width, Printed):
    """``width`` elements in one access along ``loop``; ``limit`` and ``reason`` say what stops ``refused`` elements.

    ``limit``: "widest" (`Device.vector_bytes`), "asked" (as wide as wanted), "extent" (the loop is not a multiple),
    "loaded" (the address holds a value loaded lane by lane), "predicate" (lanes disagree whether the access happens),
    "step" (lanes are not neighbours), "offset" (the first lane is not aligned), "buffer" (the memory is not).
    ``point`` is a loop point that shows it, None where more was neither proved nor refuted or no point is needed.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> a = f.input("a", shape=(64,))
    >>> t = f.output(a[3:35])
    >>> why = ig.IdModel(f).access(t.definition, a).explain_vector_width("i0")
    >>> int(why), why.wanted, why.limit
    (1, 4, 'offset')
    >>> print(why)
    a along i0: 1 element of 4
      offset 3 is not a multiple of 4
      4 elements if t1 is sliced at 4 instead of 3 (axis 0)
      4 elements if the loop is peeled: 7 accesses of 4 and 4 single elements
    >>> why.bytes, why.alignment, why.run
    (4, 4, 32)
    """

    def suggestions(self) -> tuple[Suggestion, ...]:
        """Changes that allow more, each applied to a copy of the fusion and asked again; the mildest first.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> a = f.input("a", shape=(8, 30))
        >>> t = f.output(a + 1.0)
        >>> [str(s) for s in ig.IdModel(f).access(t.definition, a).explain_vector_width("i1").suggestions()][:1]
        ['4 elements if the extent 30 of a is a multiple of 4: 32']
        """
        return () if self else suggestions(self)

    def __str__(self) -> str:
        elements = f"{self.width} element{'s' if self.width > 1 else ''}"
        head = f"{self.access.tensor.name} along {self.loop.name}: {elements} of {self.wanted}"
        offers = [f"  {c}" for c in self.suggestions()]
        return "\n".join([head, f"  {self.reason}", *offers, *([f"  {self.peel}"] if self.peel else [])])

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class _Candidate:
    """``site`` is what is changed: of several changes there, only the first that reaches a width is reported."""

    site: str
    text: str
    edits: tuple[Edit, ...]
    keeps: bool


def suggestions(why: Width) -> tuple[Suggestion, ...]:
    """See `VectorWidth.suggestions`."""
    access = why.access
    if access.maps is None or access.buffer.place == "register":
        return ()
    goal = max(why.refused, why.wanted)
    found: list[Suggestion] = list(_other_loops(why))
    candidates = list(_distinct(c for width in _widths(2 * why.width, goal) for c in _candidates(why, width)))
    sites: dict[str, int] = {}
    alone = dict.fromkeys(map(id, candidates), 0)  # edits hold mappings, which have no hash
    for c in candidates:
        for suggestion in _tried(why, (c,)):
            alone[id(c)] = suggestion.width
            if suggestion.width > sites.get(c.site, 0):
                sites[c.site] = suggestion.width
                found.append(suggestion)
    if max((c.width for c in found if c.edits), default=0) < goal:
        pairs = (p for p in product(candidates, candidates) if _independent_changes(*p))
        for pair in islice(pairs, _MAX_PAIRS):
            made = [c for c in _tried(why, pair) if c.width > max(alone[id(p)] for p in pair)]
            found += made
            if made and made[0].width >= goal:
                break
    best = max((c.width for c in found), default=0)
    mild = max((c.width for c in found if c.keeps_result), default=0)
    kept = [c for c in found if c.width == best or (c.keeps_result and c.width == mild)]
    kept.sort(key=lambda c: (not c.keeps_result, -c.width, len(c.edits)))
    return tuple(kept[:_MAX_CURES])


def _widths(low: int, high: int) -> Iterator[int]:
    while high >= low:
        yield high
        high //= 2


def _distinct(candidates: Iterator[_Candidate]) -> Iterator[_Candidate]:
    seen: list[tuple[Edit, ...]] = []
    for c in candidates:
        if c.edits not in seen:
            seen.append(c.edits)
            yield c


def _independent_changes(a: _Candidate, b: _Candidate) -> bool:
    """Whether two changes are of different kinds or tensors; True in one order of the two."""
    return a.site < b.site and not any(
        isinstance(x, type(y)) and not isinstance(x, InputEdit) and x == y for x in a.edits for y in b.edits
    )


def _other_loops(why: Width) -> Iterator[Suggestion]:
    """Loops of the same nest along which wider vectors are legal as it is."""
    if why.limit not in ("step", "loaded", "extent"):
        return
    for loop in why.access.loops:
        if loop is not why.loop:
            other = Width.along(why.access, loop, why.wanted)
            if other.width > why.width:
                text = f"the vector runs along {loop.name} instead of {why.loop.name}"
                yield Suggestion(text, other.width, (), True, loop.name)


def _tried(why: Width, chosen: Sequence[_Candidate]) -> list[Suggestion]:
    """These changes as a suggestion, asked of a changed copy; empty where they allow nothing more."""
    access = why.access
    edits = tuple(e for c in chosen for e in c.edits)
    try:
        changed = clone_fusion(access.expr.output.fusion, edits)
        if access.maps is None:
            return []
        maps = access.maps(changed)
        maps.verify()
        e = next(e for e in changed.exprs if e.output.name == access.expr.output.name)
        again = maps.write(e) if access.operand is None else maps.read(e, access.operand)
        width = Width.along(again, again.loops[access.loops.index(why.loop)], why.wanted).width
    except (IdGraphError, IndexError):
        return []
    if width <= why.width:
        return []
    text = ", and ".join(c.text for c in chosen)
    return [Suggestion(text, width, edits, all(c.keeps for c in chosen), why.loop.name)]


def _candidates(why: Width, width: int) -> Iterator[_Candidate]:
    access = why.access
    yield from _layout(access, width)
    yield from _order(access, why)
    yield from _factors(access, width)
    yield from _bounds(access.expr, width)
    yield from _padded_extents(access, width)


def _up(n: int, width: int) -> int:
    return -(-n // width) * width


def _near(n: int, width: int) -> Iterator[int]:
    """Multiples of ``width`` next to ``n``, the nearer first; none where ``n`` is one."""
    if n % width:
        yield from sorted((n - n % width, _up(n, width)), key=lambda m: (abs(m - n), -m))


def _layout(access: AccessFunction, width: int) -> Iterator[_Candidate]:
    """Alignment, offset and row pitch of an input."""
    t = access.tensor
    if t.definition is not None:
        yield from _padded_rows(t, width)
        return
    widest_access = current_device().vector_bytes
    if t.alignment < widest_access:
        edit = InputEdit(t.name, {"alignment": widest_access})
        yield _Candidate("alignment", f"the buffer of {t.name} is aligned to {widest_access} bytes", (edit,), True)
    if isinstance(t.offset, int) or t.offset.is_const:
        for n in _near(int(t.offset), width):
            text = f"{t.name} starts at offset {n} instead of {t.offset}"
            yield _Candidate("offset", text, (InputEdit(t.name, {"offset": n}),), True)
    padded = _pitch(t, width)
    if padded is not None:
        old, new = padded
        rows = next((b for a, b in zip(reversed(old), reversed(new), strict=True) if a != b), 0)
        text = f"the rows of {t.name} are padded to {rows} elements: strides {_tuple(new)}"
        yield _Candidate("strides", text, (InputEdit(t.name, {"strides": tuple(new), "contiguity": None}),), True)
    elif not all(s.is_const for s in strides(t)):
        free = [p for p, s in enumerate(strides(t)) if not s.is_const and any(n.startswith("stride") for n in s.names)]
        if free and not any(s.name == "set_allocation" for s in t.log):
            edit = InputEdit(t.name, {"contiguity": (True,) * len(t.logical)})
            yield _Candidate("strides", f"{t.name} is contiguous", (edit,), True)


def _tuple(values: Sequence[int]) -> str:
    return f"({', '.join(map(str, values))}{',' if len(values) == 1 else ''})"


def _pitch(t: Tensor, width: int) -> tuple[list[int], list[int]] | None:
    """Strides, and strides with every pitch a multiple of ``width`` and no two elements at one address."""
    now = strides(t)
    if any(s.name == "set_allocation" for s in t.log) or not all(s.is_const for s in now):
        return None
    if not all(d.extent.is_const for d in t.allocation):
        return None
    old = [int(s) for s in now]
    new = list(old)
    reach = 1
    for p in sorted(range(len(old)), key=lambda p: old[p]):
        if old[p] > 1:
            new[p] = _up(max(old[p], reach) if old[p] >= 1 else old[p], width)
        if old[p]:
            reach = max(reach, new[p] * int(t.allocation[p].extent))
    return (old, new) if old != new else None


def _padded_rows(t: Tensor, width: int) -> Iterator[_Candidate]:
    """An intermediate or output with rows of a multiple of ``width`` elements."""
    if t.log or t.allocation != t.axes or t.loop != t.logical or len(t.axes) < 2 or not t.axes[-1].extent.is_const:
        return
    n = int(t.axes[-1].extent)
    if n % width == 0:
        return
    last = t.logical.index(t.axes[-1])
    made = f"made{len(t.domain.exprs)}.0"
    kept: tuple[Attr, ...] = tuple(axis_place(t, d) for d in t.axes[:-1])
    everything: tuple[Attr, ...] = tuple(axis_place(t, d) for d in t.logical)
    steps = (
        ("resize", (last, 0, _up(n, width) - n)),
        ("set_allocation", ((*kept, made), (True,) * len(t.axes))),
        ("set_loop", (everything,)),
    )
    text = f"the rows of {t.name} are padded to {_up(n, width)} elements"
    yield _Candidate("strides", text, (NewSteps(t.name, steps),), True)


def _order(access: AccessFunction, why: Width) -> Iterator[_Candidate]:
    """Another axis innermost in memory, where the loop does not step by one element."""
    t = access.tensor
    if why.limit != "step" or len(t.axes) < 2:
        return
    for p, d in enumerate(t.axes):
        if why.loop.symbol not in access.coordinates[p].symbols:
            continue
        order = [x for x in t.axes if x is not d] + [d]
        if t.definition is not None:
            places: tuple[Attr, ...] = tuple(axis_place(t, x) for x in order)
            steps = (("set_allocation", (places, (True,) * len(order))),)
            text = f"axis {p} of {t.name} is innermost in memory"
            yield _Candidate("strides", text, (NewSteps(t.name, steps),), True)
        elif all(x.extent.is_const for x in t.axes) and not t.log:
            inner, made = 1, dict[int, int]()
            for x in reversed(order):
                made[t.axes.index(x)] = inner
                inner *= int(x.extent)
            new = tuple(made[n] for n in range(len(t.axes)))
            text = f"axis {p} of {t.name} is innermost in memory: strides {_tuple(new)}"
            yield _Candidate("strides", text, (InputEdit(t.name, {"strides": new, "contiguity": None}),), True)


def _factors(access: AccessFunction, width: int) -> Iterator[_Candidate]:
    """Split factors of the operation's loops, changed in every tensor that was split alike."""
    out = access.expr.output
    for number, step in enumerate(out.log):
        if step.name != "split" or not isinstance(step.args[1], int):
            continue
        for n in _near(step.args[1], width):
            if n < 1:
                continue
            alike = [(t, k) for t in out.fusion.tensors for k, s in enumerate(t.log) if s == step and k == number]
            text = f"axis {step.args[0]} of {out.name} is split by {n} instead of {step.args[1]}"
            own: Edit = StepEdit(out.name, number, (step.args[0], n))
            yield _Candidate(f"split{number}", text, (own,), True)
            if len(alike) > 1:
                everywhere = tuple(StepEdit(t.name, k, (step.args[0], n)) for t, k in alike)
                text = f"{text}, and so {', '.join(t.name for t, _ in alike if t is not out)}"
                yield _Candidate(f"split{number}", text, everywhere, True)


def _bounds(e: TensorExpr, width: int) -> Iterator[_Candidate]:
    """Other bounds of a slice, pad or roll."""
    name = e.output.name
    match e.op:
        case "slice":
            yield from _slices(e, width)
        case "pad":
            for side in ("left", "right"):
                for p, a in enumerate(_int_attribute(e, side)):
                    for n in _near(a, width) if a is not None else ():
                        text = f"{name} is padded by {n} instead of {a} on the {side} of axis {p}"
                        yield _Candidate(f"{side}{p}", text, (_put(e, side, p, n),), False)
        case "roll":
            for p, a in enumerate(_int_attribute(e, "shifts")):
                for n in _near(a, width) if a is not None else ():
                    text = f"{name} is rolled by {n} instead of {a} (axis {_dim(e, p)})"
                    yield _Candidate(f"roll{p}", text, (_put(e, "shifts", p, n),), False)
        case _:
            return


def _slices(e: TensorExpr, width: int) -> Iterator[_Candidate]:
    name = e.output.name
    for p, (a, b) in enumerate(zip(_int_attribute(e, "starts"), _int_attribute(e, "stops"), strict=True)):
        if a is None or b is None:
            continue
        for n in _near(a, width):
            text = f"{name} is sliced at {n} instead of {a} (axis {_dim(e, p)})"
            for end in (b + n - a, b):  # as long as it was, where there is room
                yield _Candidate(f"start{p}", text, (_put(e, "starts", p, n), _put(e, "stops", p, end)), False)
        for n in _near(b - a, width):
            text = f"{name} is sliced to {a + n} instead of {b} (axis {_dim(e, p)})"
            yield _Candidate(f"stop{p}", text, (_put(e, "stops", p, a + n),), False)


def _int_attribute(e: TensorExpr, key: str) -> list[int | None]:
    values = e.attrs.get(key)
    if not isinstance(values, tuple):
        return []
    return [v if isinstance(v, int) else int(v) if isinstance(v, Expr) and v.is_const else None for v in values]


def _dim(e: TensorExpr, p: int) -> Attr:
    dims = e.attrs.get("dims")
    return dims[p] if isinstance(dims, tuple) else p


def _put(e: TensorExpr, key: str, p: int, n: int) -> AttrEdit:
    """Entry ``p`` of a tuple of attributes, as ``n``."""
    values = e.attrs[key]
    changed = tuple(n if k == p else v for k, v in enumerate(values)) if isinstance(values, tuple) else n
    return AttrEdit(e.output.name, {key: changed})


def _padded_extents(access: AccessFunction, width: int) -> Iterator[_Candidate]:
    """Extents of inputs, and symbols, made multiples of ``width``."""
    fusion = access.expr.output.fusion
    sizes: dict[int, list[Tensor]] = {}
    for t in fusion.inputs:
        for d in t.logical:
            if d.extent.is_const and int(d.extent) % width and int(d.extent) > 1:
                sizes.setdefault(int(d.extent), []).append(t)
    for n, tensors in sizes.items():
        wide = _up(n, width)
        edits: list[Edit] = []
        for t in dict.fromkeys(tensors):
            shape = tuple(wide if d.extent.is_const and int(d.extent) == n else d.extent for d in t.logical)
            edits.append(InputEdit(t.name, {"shape": shape}))
        names = ", ".join(t.name for t in dict.fromkeys(tensors))
        text = f"the extent {n} of {names} is a multiple of {width}: {wide}"
        yield _Candidate(f"extent{n}", text, tuple(edits), False)
    for name, s in fusion.symbols.items():
        if s.symbol_bounds[2] % width:
            edit = SymbolEdit(name, lcm(width, s.symbol_bounds[2]))
            yield _Candidate(name, f"{name} is declared a multiple of {edit.multiple_of}", (edit,), True)
