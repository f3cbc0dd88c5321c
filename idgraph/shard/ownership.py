"""The owners of an element: from an element of a tensor to the ranks that hold it and its address there, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

from idgraph.arith import Expr, IndexMap, IntLike, as_expr, ceildiv, maximum, minimum, simplify, symbol
from idgraph.display import Shown
from idgraph.errors import arguments, short_repr, user_line
from idgraph.ir.fusion import Tensor
from idgraph.ir.mesh import Mesh, MeshError, Placement, Shard

REPLICATED = Placement()


class Home(NamedTuple):
    """Where an element lies: ``ranks`` hold it, each at ``coordinates`` of its local tensor and ``address`` (elements
    from the start of it)."""

    ranks: tuple[int, ...]
    coordinates: tuple[int, ...]
    address: int


class Ownership(Shown):
    """The map from elements of a tensor to the devices that hold them; `owner` makes one.

    ``symbols`` (i0, i1, ...) are an element's coordinates. ``ranks`` gives the coordinate on each mesh axis that the
    tensor is sharded over; on the others every device has the element. ``coordinates`` and ``address`` (elements) are
    those in the local tensor, which is laid out row by row without gaps.

    >>> import idgraph as ig
    >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2, y=2)
    >>> o = ig.shard.owner(f.input("t", shape=(8, 6)).shard(0, "x").shard(1, "y"))
    >>> print(o)
    t: x = i0//4, y = i1//3 at i0%4*3 + i1%3
    >>> o(5, 1), bool(o.map.is_injective)
    (Home(ranks=(2,), coordinates=(1, 1), address=4), True)
    """

    def __init__(self, tensor: Tensor, placement: Placement, mesh: Mesh) -> None:
        self.tensor, self.placement, self.mesh = tensor, placement, mesh
        self.shape = tuple(as_expr(d.extent) for d in tensor.axes)
        self.symbols = tuple(symbol(f"i{k}", 0, simplify(n - 1)) for k, n in enumerate(self.shape))
        self.ranks, self.coordinates = self.at(self.symbols)

    def at(self, coordinates: Sequence[IntLike]) -> tuple[dict[str, Expr], tuple[Expr, ...]]:
        """The mesh coordinates and the local coordinates of an element, which may be expressions."""
        here = [as_expr(c) for c in coordinates]
        left = list(self.shape)
        ranks: dict[str, Expr] = {}
        for s in self.placement.shards:
            n = self.mesh.sizes[s.over]
            block = simplify(ceildiv(left[s.axis], n))
            c = here[s.axis]
            # A shard is a split: (outer, inner) of factor n, or of what the outer one leaves.
            size = as_expr(n) if s.inner else maximum(block, 1)
            outer, inner = simplify(c // size), simplify(c % size)
            ranks[s.over], here[s.axis] = (inner, outer) if s.inner else (outer, inner)
            left[s.axis] = block
        return ranks, tuple(here)

    def sizes(self, ranks: Mapping[str, IntLike]) -> tuple[Expr, ...]:
        """The extents of the local tensor of the device at these mesh coordinates, which may be expressions."""
        valid, left = list(self.shape), list(self.shape)
        for s in self.placement.shards:
            n, r = self.mesh.sizes[s.over], as_expr(ranks[s.over])
            block = simplify(ceildiv(left[s.axis], n))
            count = valid[s.axis]
            if s.inner:
                count = ceildiv(count - r, n)
            elif not _divides_evenly(n, left[s.axis]) or count is not left[s.axis]:
                count = maximum(minimum(count - r * block, block), 0)
            else:
                count = block
            valid[s.axis], left[s.axis] = simplify(count), block
        return tuple(valid)

    def element(self, ranks: Mapping[str, IntLike], local: Sequence[IntLike]) -> tuple[Expr, ...]:
        """The element of the whole tensor at local coordinates of the device at these mesh coordinates."""
        blocks: list[tuple[Shard, Expr]] = []
        left = list(self.shape)
        for s in self.placement.shards:
            left[s.axis] = simplify(ceildiv(left[s.axis], self.mesh.sizes[s.over]))
            blocks.append((s, left[s.axis]))
        found = [as_expr(c) for c in local]
        for s, block in reversed(blocks):
            n, r = self.mesh.sizes[s.over], as_expr(ranks[s.over])
            found[s.axis] = found[s.axis] * n + r if s.inner else r * block + found[s.axis]
        return tuple(map(simplify, found))

    @cached_property
    def address(self) -> Expr:
        """Elements from the start of the local tensor."""
        found, size = as_expr(0), as_expr(1)
        for c, n in zip(reversed(self.coordinates), reversed(self.sizes(self.ranks)), strict=True):
            found, size = found + c * size, size * n
        return simplify(found)

    @cached_property
    def map(self) -> IndexMap:
        """(element) -> (coordinate on each mesh axis that it is sharded over, local address): one to one."""
        names = [name for name in self.mesh.sizes if name in self.ranks]
        most = as_expr(1)
        for n in self.sizes(dict.fromkeys(names, 0)):
            most = most * n
        extents = [as_expr(self.mesh.sizes[name]) for name in names]
        results = (*(self.ranks[name] for name in names), self.address)
        return IndexMap(self.symbols, results, (*extents, simplify(most)))

    def devices(self, ranks: Mapping[str, int]) -> tuple[int, ...]:
        """The ranks at these coordinates: all along the axes that are not named."""
        every = [(ranks[name],) if name in ranks else range(n) for name, n in self.mesh.axes]
        names = [name for name, _ in self.mesh.axes]
        return tuple(self.mesh.rank(**dict(zip(names, at, strict=True))) for at in product(*every))

    def __call__(self, *coordinates: int) -> Home:
        """The home of an element."""
        if len(coordinates) != len(self.shape):
            raise MeshError(
                f"{self.tensor.name} has {len(self.shape)} axes, got {len(coordinates)} coordinates", where=user_line()
            )
        for c, n in zip(coordinates, self.shape, strict=True):
            if isinstance(c, bool) or not isinstance(c, int) or c < 0 or (n.is_const and c >= int(n)):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise MeshError(f"{self.tensor.name} has no element {short_repr(coordinates)}", where=user_line())
        point = {s.name: c for s, c in zip(self.symbols, coordinates, strict=True)}
        ranks = {name: int(x.evaluate(point)) for name, x in self.ranks.items()}
        local = tuple(int(x.evaluate(point)) for x in self.coordinates)
        return Home(self.devices(ranks), local, int(self.address.evaluate(point)))

    def __str__(self) -> str:
        where = ", ".join(f"{name} = {x}" for name, x in self.ranks.items()) or "every rank"
        partial = ", ".join(f"{op} over {name}" for name, op in self.placement.partials.items())
        return f"{self.tensor.name}: {where} at {self.address}" + (f" ({partial})" if partial else "")

    __repr__ = __str__


def _divides_evenly(n: int, extent: Expr) -> bool:
    return simplify(extent % n).is_const and int(simplify(extent % n)) == 0


@dataclass(frozen=True, slots=True)
class LocalTensor:
    """The part of a tensor that one device holds: ``shape`` and ``strides`` (elements), and ``elements``, the map from
    its coordinates to those of the whole tensor."""

    rank: int
    shape: tuple[int | Expr, ...]
    strides: tuple[int | Expr, ...]
    elements: IndexMap

    @property
    def size(self) -> int | Expr:
        """Elements in all."""
        found = as_expr(1)
        for n in self.shape:
            found = found * n
        return _plain_int(simplify(found))


def _plain_int(e: Expr) -> int | Expr:
    return int(e) if e.is_const else e


def mesh_for(tensor: Tensor) -> Mesh:
    """The mesh of a tensor's fusion; raises `MeshError` where it has none."""
    if tensor.fusion.mesh is None:
        raise MeshError(
            f"fusion {tensor.fusion.name} has no mesh", where=user_line(), hint='f.mesh = ig.Mesh(x=2), t.shard(0, "x")'
        )
    return tensor.fusion.mesh


def _checked_tensor(value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise MeshError(f"{short_repr(value)} is not a tensor", where=user_line(), hint="a tensor of a fusion")
    return value


@arguments(MeshError, first=True)
def owner(t: Tensor) -> Ownership:
    """The owners of each element of ``t``: a map to mesh coordinates and local addresses (elements), and back.

    A tensor without a placement is on every device; see `propagate` for those that follow from others. Raises
    `MeshError` where the fusion has no mesh.

    >>> import idgraph as ig
    >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2, y=2)
    >>> o = ig.shard.owner(f.input("t", shape=(2, 4, 4)).shard(1, "x").shard(1, "y"))
    >>> print(o)
    t: x = i1//2, y = i1%2 at i0*4 + i2
    >>> o(1, 2, 3)
    Home(ranks=(2,), coordinates=(1, 0, 3), address=7)
    """
    t = _checked_tensor(t)
    return Ownership(t, t.placement or REPLICATED, mesh_for(t))


@arguments(MeshError, first=True)
def local(t: Tensor, rank: int) -> LocalTensor:
    """The part of ``t`` that device ``rank`` holds: shape, strides (elements), and which elements they are.

    Where the devices do not divide an axis, the last ones hold less, perhaps nothing. Raises `MeshError` for a rank
    that the mesh has not.

    >>> import idgraph as ig
    >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=4)
    >>> t = f.input("t", shape=(10, 3)).shard(0, "x")
    >>> [ig.shard.local(t, r).shape for r in range(4)]
    [(3, 3), (3, 3), (3, 3), (1, 3)]
    >>> ig.shard.local(t, 3).strides, ig.shard.local(t, 3).elements(0, 2)
    ((3, 1), (9, 2))
    """
    o = owner(t)
    return local_of(o, rank)


def local_of(o: Ownership, rank: int) -> LocalTensor:
    """`local` of an ownership."""
    at = o.mesh.coordinates(rank)
    sizes = o.sizes(at)
    strides: list[int | Expr] = []
    step = as_expr(1)
    for n in reversed(sizes):
        strides.insert(0, _plain_int(simplify(step)))
        step = step * n
    symbols = tuple(symbol(f"j{k}", 0, simplify(n - 1)) for k, n in enumerate(sizes))
    elements = IndexMap(symbols, o.element(at, symbols), o.shape)
    return LocalTensor(rank, tuple(map(_plain_int, sizes)), tuple(strides), elements)
