"""A mesh of devices with named axes, and where a tensor lies on it: which axes are sharded, what is a partial sum.

An axis over devices is a split of the axis whose one part runs over an axis of the mesh; sharding one axis again
splits what is left on each device, in order. The schedule and the kernels of the whole fusion do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from idgraph.errors import IdGraphError, arguments, did_you_mean, short_repr, user_line

MAX_RANKS: Final = 1 << 16
MAX_MESH_AXES: Final = 8
Reduction: TypeAlias = Literal["sum", "prod", "max", "min", "avg"]
REDUCTIONS: Final[tuple[Reduction, ...]] = get_args(Reduction)


class MeshError(IdGraphError):
    """A mesh, or a placement on one, that cannot be.

    >>> Mesh(x=0)
    Traceback (most recent call last):
    idgraph.ir.mesh.MeshError: mesh axis x has 0 devices
      ...
    """


@dataclass(frozen=True, slots=True)
class MeshAxis:
    """One axis of a mesh: ``mesh.x``, as good as its name where a placement takes one."""

    mesh: Mesh
    name: str

    @property
    def size(self) -> int:
        """Devices along it."""
        return self.mesh.sizes[self.name]

    def __repr__(self) -> str:
        return f"{self.mesh}.{self.name}"


class Mesh:
    """Devices in a grid with named axes, the first one outermost; ranks count row by row, as torch's DeviceMesh does.

    The one made last is that of fusions which name no other (`Fusion.mesh`). Equal meshes are one. Raises `MeshError`
    for names that are not identifiers, sizes below 1, and more than 8 axes or 65536 devices.

    >>> import idgraph as ig
    >>> mesh = ig.Mesh(x=2, y=3)
    >>> mesh, mesh.size, mesh.sizes, mesh.x.size
    (Mesh(x=2, y=3), 6, {'x': 2, 'y': 3}, 2)
    >>> mesh.rank(x=1, y=2), mesh.coordinates(5), list(mesh.ranks)
    (5, {'x': 1, 'y': 2}, [0, 1, 2, 3, 4, 5])
    >>> mesh["y"] == mesh.y, mesh == ig.Mesh(x=2, y=3), mesh.unknown("z").what
    (True, True, "Mesh(x=2, y=3) has no axis 'z'")
    """

    __slots__ = ("axes",)
    axes: tuple[tuple[str, int], ...]

    @arguments(MeshError)
    def __init__(self, **axes: int) -> None:
        self.axes = _checked_axes(axes)
        _current.set(self)

    @property
    def sizes(self) -> dict[str, int]:
        """Devices along each axis, by name."""
        return dict(self.axes)

    @property
    def size(self) -> int:
        """Devices in all."""
        count = 1
        for _, n in self.axes:
            count *= n
        return count

    @property
    def ranks(self) -> range:
        """The numbers of its devices."""
        return range(self.size)

    def rank(self, **coordinates: int) -> int:
        """The number of the device at a coordinate of each axis; an axis that is not named has 0."""
        found, rest = 0, dict(coordinates)
        for name, n in self.axes:
            at = rest.pop(name, 0)
            if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < n:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise MeshError(f"{short_repr(at)} is not a coordinate of {name}, which has {n}", where=user_line())
            found = found * n + at
        if rest:
            raise self.unknown(next(iter(rest)))
        return found

    def coordinates(self, rank: int) -> dict[str, int]:
        """The coordinates of a device, by the name of the axis."""
        if isinstance(rank, bool) or not isinstance(rank, int) or rank not in self.ranks:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise MeshError(
                f"{short_repr(rank)} is not a rank of {self}", where=user_line(), hint=f"0 to {self.size - 1}"
            )
        found: dict[str, int] = {}
        for name, n in reversed(self.axes):
            rank, found[name] = divmod(rank, n)
        return {name: found[name] for name, _ in self.axes}

    def unknown(self, name: object) -> MeshError:
        """The error for an axis that the mesh has not."""
        names = tuple(self.sizes)
        return MeshError(
            f"{self} has no axis {short_repr(name)}",
            where=user_line(),
            hint=did_you_mean(str(name), names, ", ".join(names)),
        )

    def __getitem__(self, name: str) -> MeshAxis:
        if name not in self.sizes:
            raise self.unknown(name)
        return MeshAxis(self, name)

    def __getattr__(self, name: str) -> MeshAxis:
        if name.startswith("__") or name == "axes" or name not in self.sizes:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}", name=name, obj=self)
        return MeshAxis(self, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self.axes == other.axes

    def __hash__(self) -> int:
        return hash(self.axes)

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{name}={n}' for name, n in self.axes)})"


_current: ContextVar[Mesh | None] = ContextVar("idgraph_current_mesh", default=None)


def current_mesh() -> Mesh | None:
    """The mesh that was made last in this context; None where none was."""
    return _current.get()


def mesh_of(axes: Mapping[str, int]) -> Mesh:
    """A mesh that does not become the current one: of texts and copies.

    >>> mesh_of({"x": 4})
    Mesh(x=4)
    """
    made = Mesh.__new__(Mesh)
    made.axes = _checked_axes(axes)
    return made


def _checked_axes(axes: Mapping[str, object]) -> tuple[tuple[str, int], ...]:
    if not axes or len(axes) > MAX_MESH_AXES:
        raise MeshError(
            f"a mesh of {len(axes)} axes", where=user_line(), hint=f"1 to {MAX_MESH_AXES} axes: ig.Mesh(x=2, y=2)"
        )
    count, found = 1, list[tuple[str, int]]()
    for name, n in axes.items():
        if not (name.isidentifier() and name.isascii()) or len(name) > 40:
            raise MeshError(f"{short_repr(name)} is not a name of a mesh axis", where=user_line(), hint="an identifier")
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise MeshError(
                f"mesh axis {name} has {short_repr(n)} devices", where=user_line(), hint="an integer, 1 or more"
            )
        count *= n
        found.append((name, n))
    if count > MAX_RANKS:
        raise MeshError(f"a mesh of {count} devices", where=user_line(), hint=f"at most {MAX_RANKS}")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Shard:
    """Axis number ``axis`` of the shape over mesh axis ``over``: in blocks, or ``inner``: element c on c mod size."""

    axis: int
    over: str
    inner: bool = False

    def __str__(self) -> str:
        return f'shard({self.axis}, "{self.over}"{", inner=true" if self.inner else ""})'


@dataclass(frozen=True, slots=True)
class Partial:
    """The values are the ``op`` ("sum", "prod", "max", "min" or "avg") of what the devices along ``over`` have."""

    over: str
    op: Reduction = "sum"

    def __str__(self) -> str:
        return f'partial("{self.over}", "{self.op}")'


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a tensor lies: its shards, in the order in which they split, and its partial results.

    On an axis of the mesh that none of them names each device has all of it (it is replicated there).

    >>> print(Placement((Shard(1, "x"), Shard(1, "y"), Partial("z"))))
    shard(1, "x") shard(1, "y") partial("z", "sum")
    >>> print(Placement())
    replicate()
    >>> p = Placement((Shard(1, "x"), Partial("z")))
    >>> p.shards, p.partials, p.on("y")
    ((Shard(axis=1, over='x', inner=False),), {'z': 'sum'}, None)
    """

    steps: tuple[Shard | Partial, ...] = ()

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards, in order."""
        return tuple(s for s in self.steps if isinstance(s, Shard))

    @property
    def partials(self) -> dict[str, Reduction]:
        """The reduction that is left to do along each mesh axis that has one."""
        return {s.over: s.op for s in self.steps if isinstance(s, Partial)}

    def on(self, over: str) -> Shard | Partial | None:
        """The step over a mesh axis; None: replicated."""
        return next((s for s in self.steps if s.over == over), None)

    def __str__(self) -> str:
        return " ".join(map(str, self.steps)) or "replicate()"
