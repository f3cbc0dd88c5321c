"""The placement of tensors on a mesh of devices: a part of `Tensor`, as steps that are checked when they are taken."""

from __future__ import annotations

from idgraph.errors import arguments, did_you_mean, short_repr, user_line
from idgraph.ir.argument_resolution import is_int
from idgraph.ir.dtypes import is_float
from idgraph.ir.mesh import REDUCTIONS, Mesh, MeshAxis, MeshError, Partial, Placement, Shard, current_mesh
from idgraph.ir.protocols import L, TensorLike
from idgraph.ir.transaction import transactional_step

_NAMES = {"amax": "max", "amin": "min", "product": "prod", "mean": "avg"}


class Placing:
    """The steps that place a tensor on the devices of a mesh; a part of `Tensor`.

    >>> import idgraph as ig
    >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2, y=2)
    >>> t = f.input("t", shape=(8, 6))
    >>> print(t.shard(0, "x").shard(0, "y").placement)
    shard(0, "x") shard(0, "y")
    """

    __slots__ = ()

    @arguments(MeshError, keep=transactional_step)
    def shard(self: L, axis: int, over: str | MeshAxis, *, inner: bool = False) -> L:
        """Spread axis ``axis`` of the shape over mesh axis ``over``: an outer split whose outer part are the devices.

        A device holds ceil(extent / size) neighbouring elements; with ``inner`` every size-th one (cyclic). An axis
        may be sharded again, over another axis of the mesh: that splits what each device holds. Raises `MeshError` for
        an axis that is not there, and a mesh axis that the tensor is on already.

        >>> import idgraph as ig
        >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2)
        >>> t = f.input("t", shape=(8,)).shard(0, "x", inner=True)
        >>> ig.shard.owner(t)(5)
        Home(ranks=(1,), coordinates=(2,), address=2)
        """
        place = _axis_of_mesh(self, over, "shard")
        rank = self.ndim
        if not is_int(axis) or not -rank <= axis < rank:
            raise MeshError(
                f"shard: {self.name} has no axis {short_repr(axis)}",
                where=user_line(),
                hint=f"its shape is {self.shape}",
            )
        if not isinstance(inner, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise MeshError(f"shard: inner is {short_repr(inner)}", where=user_line(), hint="True or False")
        _add_placement(self, Shard(axis % rank, place.name, inner), place.mesh)
        return self

    @arguments(MeshError, keep=transactional_step)
    def partial(self: L, over: str | MeshAxis, op: str = "sum") -> L:
        """Say that the values are the ``op`` ("sum", "prod", "max", "min", "avg") of what devices along ``over`` hold.

        A mean ("avg") is one of floating point numbers. Raises `MeshError` for another reduction, and as `shard` does.

        >>> import idgraph as ig
        >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2)
        >>> print(f.input("t", shape=(8,)).partial("x", "sum").placement)
        partial("x", "sum")
        """
        place = _axis_of_mesh(self, over, "partial")
        known = _NAMES.get(op, op)
        for reduction in REDUCTIONS:
            if known == reduction == "avg" and not is_float(self.dtype):
                raise MeshError(
                    f"partial: {self.name} is of {self.dtype}, which has no mean",
                    where=user_line(),
                    hint='partial(over, "sum"), and a division behind it',
                )
            if known == reduction:
                _add_placement(self, Partial(place.name, reduction), place.mesh)
                return self
        raise MeshError(
            f"partial: unknown reduction {short_repr(op)}",
            where=user_line(),
            hint=did_you_mean(str(op), REDUCTIONS, ", ".join(REDUCTIONS)),
        )

    @arguments(MeshError, keep=transactional_step)
    def replicate(self: L) -> L:
        """Put all of the tensor on every device; takes back what was said of its placement before.

        >>> import idgraph as ig
        >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2)
        >>> print(f.input("t", shape=(8,)).shard(0, "x").replicate().placement)
        replicate()
        """
        _set_placement(self, Placement(), _mesh_of(self, "replicate"))
        return self


def _add_placement(tensor: TensorLike, step: Shard | Partial, mesh: Mesh) -> None:
    before = tensor.placement or Placement()
    met = before.on(step.over)
    if met is not None:
        free = [name for name in mesh.sizes if before.on(name) is None]
        hint = f"free: {', '.join(free)}" if free else "t.replicate() takes its placement back"
        raise MeshError(f"{tensor.name} is on mesh axis {step.over} already: {met}", where=user_line(), hint=hint)
    _set_placement(tensor, Placement((*before.steps, step)), mesh)


def _set_placement(tensor: TensorLike, placement: Placement, mesh: Mesh) -> None:
    if tensor.fusion.mesh is None:
        tensor.fusion.mesh = mesh
    tensor.placement = placement
    tensor.fusion.touch()


def _axis_of_mesh(tensor: TensorLike, over: object, what: str) -> MeshAxis:
    """The axis of the mesh of the tensor's fusion, or of the mesh that it would take."""
    fusion = tensor.fusion
    if isinstance(over, MeshAxis):
        if fusion.mesh not in (None, over.mesh):
            raise MeshError(
                f"{what}: {over!r} is not an axis of the mesh of fusion {fusion.name}",
                where=user_line(),
                because=(f"it has {fusion.mesh}",),
                hint="one mesh a fusion: f.mesh = mesh, before anything is placed",
            )
        return over
    mesh = _mesh_of(tensor, what)
    if not isinstance(over, str) or over not in mesh.sizes:
        raise mesh.unknown(over)
    return mesh[over]


def _mesh_of(tensor: TensorLike, what: str) -> Mesh:
    found = tensor.fusion.mesh or current_mesh()
    if found is None:
        raise MeshError(
            f"{what}: fusion {tensor.fusion.name} has no mesh",
            where=user_line(),
            hint="mesh = ig.Mesh(x=2, y=2), or f.mesh = mesh",
        )
    return found
