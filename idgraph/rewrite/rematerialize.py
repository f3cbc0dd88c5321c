"""Reading a computed tensor at other coordinates: the same operations on the inputs, read there.

``x = f(a, b)`` at coordinates c is f of a and b at what f reads for c. A coordinate is an axis of the result, a
number, or an integer tensor that broadcasts to the result: a loaded index, or what movement made of one. Movement
changes coordinates (a slice adds its start, a reshape divides), everything pointwise passes them on, a reduction adds
the axes it reduces, a gather loads an index of its own.

An index that is moved is first tested against the axis it was given for: out of range it becomes -1, which every
gather refuses, and never an element that the original would not have read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from idgraph.arith import Expr, as_expr, is_true, simplify
from idgraph.errors import OperationError
from idgraph.ir import Fusion, LoadedCoordinate, Mapped, Scalar, Tensor, TensorExpr
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.axis_read import Attr
from idgraph.ir.op_builders import REDUCTIONS, same_extent
from idgraph.ir.op_table import GATHERS, POINTWISE, apply
from idgraph.ir.reshape import axis_groups

MAX_READS = 256  # reads of one gather's operand after which it is not worth while
AGAIN = 16  # reads of one element after which computing it again is code without end: gathers of gathers double it


class CannotRematerialize(Exception):
    """A producer cannot be read at other coordinates; says why."""


@dataclass(frozen=True, slots=True)
class Along:
    """The coordinate of an axis of the result."""

    axis: int


@dataclass(frozen=True, slots=True)
class Picked:
    """Coordinates held in a tensor that broadcasts to the result. ``valid`` says where the user's index, as it was
    before it was moved, is in range (None: it was not moved); ``given`` is True of an index of the user's."""

    tensor: Tensor
    extent: Expr
    given: bool = True
    valid: Tensor | None = None


Coordinate: TypeAlias = Along | Expr | Picked


@dataclass(slots=True)
class Rematerializer:
    """Builds what a tensor of ``shape`` would be, read at coordinates; results have the rank of ``shape``.

    Gathers that are ``kept`` are not read through: their source is stored, and is read at their index and the other."""

    fusion: Fusion
    shape: tuple[Expr, ...]
    kept: Collection[Tensor] = ()
    counted: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    known: dict[tuple[Tensor, tuple[Coordinate, ...]], Tensor] = field(
        default_factory=dict[tuple[Tensor, tuple[Coordinate, ...]], Tensor]
    )
    reads: list[Tensor] = field(default_factory=list[Tensor])
    tests_index: bool = False  # some gather that was built refuses the user's index where it is out of range

    @property
    def rank(self) -> int:
        """Axes of the result."""
        return len(self.shape)

    def read(self, t: Tensor, at: Sequence[Coordinate]) -> Tensor:
        """``t`` at the coordinates ``at``, one for each axis of its shape; raises `CannotRematerialize`."""
        key = (t, tuple(at))
        found = self.known.get(key)
        if found is None:
            if len(self.known) > MAX_READS:
                raise CannotRematerialize(f"more than {MAX_READS} reads would replace it")
            found = self.known[key] = self._read(t, key[1])
        return found

    def _read(self, t: Tensor, at: tuple[Coordinate, ...]) -> Tensor:
        if not any(isinstance(c, Picked) for c in at):
            return self.plain(t, at)
        e = t.definition
        if e is None:
            return self.leaf(t, at)
        if e.op in POINTWISE:
            return self.pointwise(e, at)
        if e.op in REDUCTIONS:
            return self.reduction(e, at)
        if e.op in GATHERS:
            return self.gather(e, at)
        return self.moved(e, at)

    # integers -----------------------------------------------------------------------------------------------------

    def count(self, axis: int) -> Tensor:
        """0, 1, 2, ... along an axis of the result."""
        if axis not in self.counted:
            numbers = self.fusion.iota(attr(self.shape[axis]), dtype="int64")
            self.counted[axis] = movement.reshape(numbers, [-1 if p == axis else 1 for p in range(self.rank)])
        return self.counted[axis]

    def picked(self, c: Coordinate, extent: Expr) -> Picked:
        """A coordinate as a tensor of int64."""
        match c:
            case Along(axis):
                return Picked(self.count(axis), extent, given=False)
            case Picked():
                return c
            case _:
                value = apply(self.fusion, "full", (), {"shape": (1,) * self.rank, "value": 0, "dtype": "int64"})
                return Picked(ops.add(value, c) if c != as_expr(0) else value, extent, given=False)

    def tested(self, c: Picked) -> Tensor | None:
        """Where the user's index is in range; None where it always is."""
        if c.valid is not None or not c.given:
            return c.valid
        return ops.logical_and(ops.ge(c.tensor, 0), ops.lt(c.tensor, attr(c.extent)))

    def change(self, c: Coordinate, extent: Expr, scale: Expr, start: Expr) -> Coordinate:
        """``scale * c + start``, a coordinate of an axis of ``extent``."""
        if scale == as_expr(1) and start == as_expr(0):
            return replace(c, valid=self.tested(c), extent=extent) if isinstance(c, Picked) else c
        if isinstance(c, Expr):
            return simplify(c * scale + start)
        old = self.picked(c, extent)
        wide = old.tensor if old.tensor.dtype == "int64" else ops.cast(old.tensor, "int64")
        scaled = wide if scale == as_expr(1) else ops.mul(wide, attr(scale))
        made = scaled if start == as_expr(0) else ops.add(scaled, attr(start))
        return Picked(made, extent, old.given, self.tested(old))

    # operations ---------------------------------------------------------------------------------------------------

    def pointwise(self, e: TensorExpr, at: tuple[Coordinate, ...]) -> Tensor:
        """The same operation on operands read at the same coordinates, broadcast axes at 0."""
        args: list[Tensor | Scalar | Expr] = []
        for a in e.args:
            if not isinstance(a, Tensor):
                args.append(a)
                continue
            shift = len(at) - a.ndim
            args.append(self.read(a, [as_expr(0) if d.is_broadcast else at[p + shift] for p, d in enumerate(a.axes)]))
        made = apply(self.fusion, e.op, args, e.attrs)
        return made if made.dtype == e.output.dtype else ops.cast(made, e.output.dtype)

    def reduction(self, e: TensorExpr, at: tuple[Coordinate, ...]) -> Tensor:
        """The reduction over axes of its own, behind those of the result."""
        x = e.inputs[0]
        dims = [p for p, r in enumerate(e.reads[0]) if isinstance(r, Mapped) and r.domain.kind == "reduction"]
        if _fewer(self.shape, [d.extent for d in e.output.axes]):
            extents = tuple(x.axes[p].extent for p in dims)
            inner = Rematerializer(self.fusion, (*self.shape, *extents), self.kept)
            place = {r.domain: k for k, r in enumerate(e.reads[0]) if isinstance(r, Mapped)}
            kept: dict[int, Coordinate] = {}
            for d, c in zip(e.output.axes, at, strict=True):
                if d in place:
                    kept[place[d]] = inner.lifted(c, len(dims))
            coordinates = [Along(self.rank + dims.index(p)) if p in dims else kept[p] for p in range(x.ndim)]
            value = inner.read(x, coordinates)
            self.reads += inner.reads
            self._few()
            self.tests_index |= inner.tests_index
            wanted = [*(value.axes[p].extent for p in range(self.rank)), *extents]
            if not all(same_extent(d.extent, n) for d, n in zip(value.axes, wanted, strict=True)):
                value = movement.expand(value, [attr(n) for n in wanted])
            attrs: dict[str, Attr] = {k: v for k, v in e.attrs.items() if k == "dtype"}
            attrs["dims"] = tuple(range(self.rank, self.rank + len(dims)))
            return apply(self.fusion, e.op, (value,), attrs)
        return self.leaf(e.output, at)  # fewer rows than are read: each is summed up once, then read

    def lifted(self, c: Coordinate, more: int) -> Coordinate:
        """A coordinate of a result without the last ``more`` axes of this one."""
        if not isinstance(c, Picked):
            return c
        places = tuple(range(self.rank - more, self.rank))

        def wide(t: Tensor) -> Tensor:
            return apply(self.fusion, "unsqueeze", (t,), {"dims": places})

        return replace(c, tensor=wide(c.tensor), valid=None if c.valid is None else wide(c.valid))

    def gather(self, e: TensorExpr, at: tuple[Coordinate, ...]) -> Tensor:
        """A gather of a gather: its index is read at the coordinates, and is the coordinate of what it reads."""
        own = dict(zip(e.output.axes, at, strict=True))
        for x in e.output.domain.exprs:  # a smaller index reads the front part
            own |= dict.fromkeys(x.inputs, own[x.outputs[0]])
        source = next(k for k, row in enumerate(e.reads) if any(isinstance(r, LoadedCoordinate) for r in row))
        loaded: dict[int, Picked] = {}
        for k, (t, row) in enumerate(zip(e.inputs, e.reads, strict=True)):
            if k != source:
                where = [own[r.domain] if isinstance(r, Mapped) else as_expr(0) for r in row]
                loaded[k] = Picked(self.read(t, where), as_expr(0))
        coordinates: list[Coordinate] = []
        for d, r in zip(e.inputs[source].axes, e.reads[source], strict=True):
            match r:
                case LoadedCoordinate(operand):
                    coordinates.append(replace(loaded[operand], extent=d.extent))
                case Mapped(domain):
                    coordinates.append(as_expr(0) if d.is_broadcast else own[domain])
                case _:
                    coordinates.append(as_expr(0))
        x = e.inputs[source]
        return self.leaf(x, coordinates) if e.output in self.kept else self.read(x, coordinates)

    def moved(self, e: TensorExpr, at: tuple[Coordinate, ...]) -> Tensor:
        """Movement: other coordinates of its operand."""
        x = e.inputs[0] if e.inputs else e.output
        extents = [d.extent for d in x.axes]
        match e.op:
            case "unsqueeze" | "squeeze" | "expand" | "permute" | "select":
                return self.read(x, _rearranged(e, at))
            case "slice":
                coordinates = list(at)
                for p, start, step in zip(*(_numbers(e, k) for k in ("dims", "starts", "steps")), strict=True):
                    coordinates[int(p)] = self.change(at[int(p)], extents[int(p)], step, start)
                return self.read(x, coordinates)
            case "flip":
                dims = {int(p) % x.ndim for p in _numbers(e, "dims")}
                return self.read(
                    x, [self.change(c, n, as_expr(-1), n - 1) if p in dims else c
                        for p, (c, n) in enumerate(zip(at, extents, strict=True))]
                )  # fmt: skip
            case "roll":
                coordinates = list(at)
                for p, shift in zip(_numbers(e, "dims"), _numbers(e, "shifts"), strict=True):
                    coordinates[int(p)] = self.wrapped(coordinates[int(p)], extents[int(p)], shift)
                return self.read(x, coordinates)
            case "pad":
                return self.pad(e, at)
            case "cat":
                return self.cat(e, at)
            case "reshape":
                return self.reshape(e, at)
            case "full":
                return apply(self.fusion, "full", (), {**e.attrs, "shape": (1,) * self.rank})
            case "iota":
                return self.iota(e, at)
            case _:
                raise CannotRematerialize(f"{e.op} of {e.output.name} is not computed element by element")

    def wrapped(self, c: Coordinate, n: Expr, shift: Expr) -> Coordinate:
        """``(c - shift) mod n``."""
        if isinstance(c, Expr):
            return simplify((c - shift) % n)
        moved = self.change(self.picked(c, n), n, as_expr(1), simplify(-shift))
        if not isinstance(moved, Picked):
            return moved
        return replace(moved, tensor=ops.remainder(moved.tensor, attr(n)))

    def pad(self, e: TensorExpr, at: tuple[Coordinate, ...]) -> Tensor:
        """The operand where it has an element (read at the nearest one elsewhere), else the value."""
        x, coordinates = e.inputs[0], list(at)
        inside: Tensor | None = None
        both = zip(_numbers(e, "left"), _numbers(e, "right"), strict=True)
        for p, (left, right) in enumerate(both):
            if left == as_expr(0) and right == as_expr(0):
                continue
            n = x.axes[p].extent
            moved = self.change(self.picked(at[p], n), n, as_expr(1), simplify(-left))
            coordinates[p] = moved
            if isinstance(moved, Picked) and not (is_true(left <= 0) and is_true(right <= 0)):
                here = ops.logical_and(ops.ge(moved.tensor, 0), ops.lt(moved.tensor, attr(n)))
                inside = here if inside is None else ops.logical_and(inside, here)
                coordinates[p] = self.clamped(moved, n)
        value = self.read(x, coordinates)
        fill = e.attrs["value"]
        if inside is None or not isinstance(fill, (bool, int, float)):
            return value
        return self.chosen(inside, value, fill)

    def chosen(self, condition: Tensor, a: Tensor, b: Tensor | Scalar) -> Tensor:
        """``where`` in the type of a."""
        made = ops.where(condition, a, b)
        return made if made.dtype == a.dtype else ops.cast(made, a.dtype)

    def clamped(self, c: Picked, n: Expr) -> Picked:
        """The nearest coordinate of an axis of ``n`` elements; what was out of range for the user stays so."""
        if n == as_expr(0):
            raise CannotRematerialize("it reads an axis without elements")
        return replace(c, tensor=ops.minimum(ops.maximum(c.tensor, 0), attr(n - 1)), valid=self.tested(c), extent=n)

    def cat(self, e: TensorExpr, at: tuple[Coordinate, ...]) -> Tensor:
        """The part that holds the coordinate; the others are read at their nearest element."""
        dim = e.attrs["dim"]
        p = dim % len(at) if isinstance(dim, int) else 0
        total, found = as_expr(0), list[tuple[Expr, Tensor]]()
        c = at[p]
        for t in e.inputs:
            n = t.axes[p].extent
            if n == as_expr(0):
                continue
            moved = self.change(self.picked(c, e.output.axes[p].extent), n, as_expr(1), simplify(-total))
            if not isinstance(moved, Picked):
                raise CannotRematerialize("a part of a cat lies at no coordinate")
            part = self.read(t, [*at[:p], self.clamped(moved, n), *at[p + 1 :]])
            total = simplify(total + n)
            found.append((total, part if part.dtype == e.output.dtype else ops.cast(part, e.output.dtype)))
        if not found:
            raise CannotRematerialize(f"{e.output.name} has no element")
        place = self.picked(c, total).tensor
        made = found[-1][1]
        for end, part in reversed(found[:-1]):
            made = ops.where(ops.lt(place, attr(end)), part, made)
        return made

    def reshape(self, e: TensorExpr, at: tuple[Coordinate, ...]) -> Tensor:
        """The element's row-major number, divided by the operand's extents, for each group of axes."""
        x, found = e.inputs[0], dict[int, Coordinate]()
        for whole, parts in _groups(e.output, x, at):
            if len(whole) == len(parts) == 1:
                found[parts[0]] = at[whole[0]]
            else:
                found |= self.divide([(e.output.axes[p].extent, at[p]) for p in whole], x, parts)
        return self.read(x, [found.get(p, as_expr(0)) for p in range(x.ndim)])

    def divide(self, at: Sequence[tuple[Expr, Coordinate]], x: Tensor, parts: Sequence[int]) -> dict[int, Coordinate]:
        """The coordinates of the axes ``parts`` of ``x``, whose elements axes of these extents number."""
        number: Tensor | None = None
        valid: Tensor | None = None
        given, found = False, dict[int, Coordinate]()
        for n, c in at:
            here = self.picked(c, n)
            wide = here.tensor if here.tensor.dtype == "int64" else ops.cast(here.tensor, "int64")
            number = wide if number is None else ops.add(ops.mul(number, attr(n)), wide)
            test = self.tested(here)
            valid = test if valid is None else valid if test is None else ops.logical_and(valid, test)
            given |= here.given
        for p in reversed(parts):
            n = x.axes[p].extent
            if number is None or x.axes[p].is_broadcast:
                continue
            found[p] = Picked(number if p == parts[0] else ops.remainder(number, attr(n)), n, given, valid)
            number = ops.floor_divide(number, attr(n)) if p != parts[0] else number
        return found

    def iota(self, e: TensorExpr, at: tuple[Coordinate, ...]) -> Tensor:
        """start + step * coordinate."""
        start, step = e.attrs["start"], e.attrs["step"]
        if not isinstance(start, int) or not isinstance(step, int):
            raise CannotRematerialize(f"{e.output.name} counts in fractions")
        place = self.picked(at[0], e.output.axes[0].extent).tensor
        value = ops.add(ops.mul(ops.cast(place, "int64"), step), start)
        return value if e.output.dtype == "int64" else ops.cast(value, e.output.dtype)

    # leaves -------------------------------------------------------------------------------------------------------

    def plain(self, t: Tensor, at: tuple[Coordinate, ...]) -> Tensor:
        """``t`` where nothing is loaded: selected, permuted, cut to the result's extents and given its rank."""
        axes: list[int] = []
        kept: list[Coordinate] = []  # of the axes that are not selected away
        for p, (d, c) in reversed(list(enumerate(zip(t.axes, at, strict=True)))):
            if isinstance(c, Along):
                axes.insert(0, c.axis)
                kept.insert(0, c)
            elif d.is_broadcast and isinstance(c, Expr) and len(at) == self.rank:
                axes.insert(0, p)
                kept.insert(0, as_expr(0))
            elif isinstance(c, Expr):
                t = movement.select(t, p, attr(c)) if not d.is_broadcast else movement.squeeze(t, p)
        if len(set(axes)) != len(axes):
            return self.leaf(t, kept)
        if axes != sorted(axes):
            t = movement.permute(t, [axes.index(a) for a in sorted(axes)])
        for p, a in enumerate(sorted(axes)):
            if not t.axes[p].is_broadcast and not same_extent(t.axes[p].extent, self.shape[a]):
                t = movement.slice(t, p, 0, attr(self.shape[a]))
        missing = tuple(p for p in range(self.rank) if p not in axes)
        return unsqueezed(t, missing)

    def leaf(self, t: Tensor, at: Sequence[Coordinate]) -> Tensor:
        """A gather of ``t`` itself."""
        self.reads.append(t)
        self._few()
        self.tests_index |= any(isinstance(c, Picked) and c.given for c in at)
        varying = {p for c in at if isinstance(c, Picked) for p, d in enumerate(c.tensor.axes) if not d.is_broadcast}
        loaded = [p for p, c in enumerate(at) if isinstance(c, Picked)]
        if t.ndim == self.rank and len(loaded) == 1 and self._stays(t, at, loaded[0]):
            c = at[loaded[0]]
            if isinstance(c, Picked):
                return apply(self.fusion, "take_along_dim", (t, self.index(c)), {"dim": loaded[0]})
        before = 0
        while before < t.ndim and before not in varying and self._axis_coordinate(t, at, before, before):
            before += 1
        after = 0
        while (
            before + after < min(t.ndim, self.rank)
            and (self.rank - 1 - after) not in varying
            and self._axis_coordinate(t, at, t.ndim - 1 - after, self.rank - 1 - after)
        ):
            after += 1
        dims = tuple(range(before, t.ndim - after))
        if not dims:  # nothing depends on the index
            return self.plain(t, tuple(at))
        indices = [self.index(self.picked(at[p], t.axes[p].extent)) for p in dims]
        drop = tuple(p for p in range(self.rank) if p < before or p >= self.rank - after)
        narrow = [_squeezed(i, drop) for i in indices]
        return apply(self.fusion, "index", (t, *narrow), {"dims": dims})

    def _few(self) -> None:
        if len(self.reads) > AGAIN:
            raise CannotRematerialize(f"it reads more than {AGAIN} places for each element")

    def index(self, c: Picked) -> Tensor:
        """The tensor to index with: -1 where a moved index was out of range before."""
        return c.tensor if c.valid is None else ops.where(c.valid, c.tensor, -1)

    def _axis_coordinate(self, t: Tensor, at: Sequence[Coordinate], p: int, axis: int) -> bool:
        """Axis ``p`` of t is the result's ``axis``, whole, or one element for all of it."""
        if t.axes[p].is_broadcast and isinstance(at[p], Expr):
            return True
        return at[p] == Along(axis) and same_extent(t.axes[p].extent, self.shape[axis])

    def _stays(self, t: Tensor, at: Sequence[Coordinate], dim: int) -> bool:
        return all(self._axis_coordinate(t, at, p, p) for p in range(t.ndim) if p != dim)


def _squeezed(t: Tensor, drop: tuple[int, ...]) -> Tensor:
    """``t`` without these axes of one element; what was unsqueezed just now never gets them."""
    if not drop:
        return t
    e = t.definition
    added = {*_int_values(e.attrs["dims"])} if e is not None and e.op == "unsqueeze" else set[int]()
    if e is None or not {*drop} <= added:
        return apply(t.fusion, "squeeze", (t,), {"dims": drop})
    left = [p for p in range(t.ndim) if p not in drop]
    dims = tuple(n for n, p in enumerate(left) if p in added)
    return apply(t.fusion, "unsqueeze", (e.inputs[0],), {"dims": dims}) if dims else e.inputs[0]


def unsqueezed(t: Tensor, dims: tuple[int, ...]) -> Tensor:
    """``t`` with new axes of one element at ``dims`` of the result; those that were squeezed just now come back.

    Both kinds of axes lie between the same kept ones: of each such gap the squeezed axes count, not their places.
    """
    e = t.definition
    if not dims or e is None or e.op != "squeeze":
        return apply(t.fusion, "unsqueeze", (t,), {"dims": dims}) if dims else t
    gone = {*_int_values(e.attrs["dims"])}
    before = Counter(q - sum(d < q for d in gone) for q in sorted(gone))  # kept axes in front: how many are squeezed
    new: list[int] = []
    for n, p in enumerate(dims):
        gap = p - n
        if before[gap]:
            before[gap] -= 1
        else:
            new.append(p)
    if +before:  # more were squeezed than come back
        return apply(t.fusion, "unsqueeze", (t,), {"dims": dims})
    return unsqueezed(e.inputs[0], tuple(new))


def _int_values(value: Attr) -> Iterator[int]:
    return (d for d in value if isinstance(d, int)) if isinstance(value, tuple) else iter(())


def _groups(t: Tensor, x: Tensor, at: Sequence[Coordinate]) -> list[tuple[list[int], list[int]]]:
    """Axes of ``t`` and of ``x``, whose reshape it is, that hold the same elements. All of them together where there is
    none, and where an axis of one element is read at an index: a wrong one makes all of it wrong."""
    mine, theirs = [d.extent for d in t.axes], [d.extent for d in x.axes]
    if any(n == 1 and not isinstance(c, Expr) for n, c in zip(mine, at, strict=True)) or 0 in (*mine, *theirs):
        return [(list(range(len(mine))), list(range(len(theirs))))]
    return axis_groups(mine, theirs)


def _fewer(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    """Fewer points in box a than in b, as far as that can be known."""
    sizes = [as_expr(1), as_expr(1)]
    for k, box in enumerate((a, b)):
        for n in box:
            sizes[k] = sizes[k] * n
    return is_true(simplify(sizes[0]) < simplify(sizes[1]))


def _numbers(e: TensorExpr, key: str) -> list[Expr]:
    value = e.attrs[key]
    if not isinstance(value, tuple):
        raise OperationError(f"{key} of {e.name} is not a tuple")
    return [as_expr(v) for v in value if isinstance(v, (int, Expr))]


def _rearranged(e: TensorExpr, at: tuple[Coordinate, ...]) -> list[Coordinate]:
    """Coordinates of the operand of an operation that adds, drops or permutes axes: what it says of each axis."""
    own = dict(zip(e.output.axes, at, strict=True))
    made: list[Coordinate] = []
    for d, r in zip(e.inputs[0].axes, e.reads[0], strict=True):
        if isinstance(r, Mapped):
            made.append(as_expr(0) if d.is_broadcast else own[r.domain])
        else:
            made.append(getattr(r, "index", as_expr(0)))
    return made
