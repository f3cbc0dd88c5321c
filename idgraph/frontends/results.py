"""The results of a call: with the strides captured, and in the same memory where the program's own are.

Arguments that the program changes are changed first, so that views of them are views of what the caller gave. What
follows from shapes, types and devices of arguments is decided once, for any number of calls.

Arguments of a call against what was captured: shapes, types, numbers, and the symbols that shapes give values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from idgraph.arith import Expr
from idgraph.errors import FrontendError
from idgraph.frontends.aliasing import Shared
from idgraph.frontends.array_space import ArraySpace, Place, place_of
from idgraph.frontends.call_source import CallSource
from idgraph.frontends.dynamic_shapes import Size
from idgraph.frontends.graph import CapturedProgram, Node, Ref, TensorMeta, where_of
from idgraph.frontends.torch_arrays import is_torch, to_numpy, to_torch

Base = tuple[Any, Any]  # an array that views are made of, and what is returned for it itself: the caller's tensor, say


@dataclass(slots=True)
class ResultContext:
    """One call: arguments as ``given``, and the ``values`` of nodes, by slot. ``theirs``: the memory of arguments and
    of results; ``bases``: of views, by node."""

    given: Sequence[Any]
    values: list[Any]
    theirs: set[int] = field(default_factory=set[int])
    bases: dict[str, Base] = field(default_factory=dict[str, Base])


Make = Callable[[ResultContext], Any]


class ResultSource(NamedTuple):
    """A result: the array in a slot that ``kernels`` make or that is an ``argument``, or the view that ``value`` makes
    of it; or a ``value`` (its place among the results is the slot)."""

    of: Literal["kernels", "argument", "value"]
    slot: int
    value: Any = None

    @property
    def is_new(self) -> bool:
        """Whether kernels make it."""
        return self.of == "kernels" and self.value is None

    def resolve(self, made: Sequence[Any], given: Sequence[Any], size: Any) -> Any:
        """The result of a call: ``size`` stands for a number, or is shape, strides and start of a view; None where the
        sizes are those of the value."""
        if self.of == "value":
            return self.value if size is None or type(self.value) is not int else size
        base = made[self.slot] if self.of == "kernels" else given[self.slot]
        if self.value is None:
            return base
        base = base.detach() if is_torch(base) and base.requires_grad else base
        if size is None:
            return self.value(base)
        shape, strides, start = size
        return base.as_strided(shape, strides, base.storage_offset() + start)


class ResultBuilder:
    """How values of nodes become results, for arguments of certain shapes.

    ``aliases``: `shared_results`; ``slots``: places of nodes in `ResultContext.values`, arguments first; ``fresh``:
    nodes that kernels write in memory of their own. ``watches``: a call compares the memory of results with that of
    arguments.
    """

    __slots__ = (
        "_bases", "_changed", "_env", "_own", "_places", "_program", "_slots", "_space", "_views", "_written",
        "watches",
    )  # fmt: skip

    def __init__(
        self,
        program: CapturedProgram,
        aliases: Mapping[str, Shared],
        space: ArraySpace,
        env: Mapping[str, int],
        slots: Mapping[str, int],
        fresh: Collection[str],
    ) -> None:
        self._program, self._space, self._env, self._slots = program, space, env, slots
        count = len(program.mutated)
        rest = [(n, v.name if isinstance(v, Ref) else None, v) for n, v in enumerate(program.results[count:])]
        mine = [name for _, name, _ in rest if name not in aliases and self._meta(name) is not None]
        roots = {s.root for name, s in aliases.items() if any(name == other for _, other, _ in rest)}
        computed = [r for r in roots if program[r].kind == "call"]
        self.watches = len(set(mine)) < len(mine) or not all(name in fresh for name in (*mine, *computed))
        self._changed = tuple(self._value(v) for v in program.results[:count])
        self._written = tuple((slots[n], program[n]) for n in program.mutated)
        self._own = tuple((n, self._result(v)) for n, name, v in rest if name not in aliases)
        self._views = tuple(
            (n, self._view(aliases[name])) for n, name, _ in rest if name is not None and name in aliases
        )
        self._places = {n: self._at(aliases[name]) for n, name, _ in rest if name is not None and name in aliases}
        self._bases = self._changed_bases(aliases)

    def _changed_bases(self, aliases: Mapping[str, Shared]) -> tuple[tuple[str, Callable[[ResultContext], Base]], ...]:
        """The tensors behind the new values of arguments: the arguments, which have them by then."""
        of = {s.root: s.of for s in aliases.values()}
        pairs = zip(self._program.mutated, self._program.results, strict=False)
        return tuple((v.name, self._argument(n, of[v.name])) for n, v in pairs if isinstance(v, Ref) and v.name in of)

    def results(self, call: ResultContext) -> list[Any]:
        """All results, those of arguments that are changed first."""
        changed = [value(call) for value in self._changed]
        found: list[Any] = [None] * (len(self._own) + len(self._views))
        for n, made in self._own:
            found[n] = made(call)
        for (at, node), value in zip(self._written, changed, strict=True):
            _write_back(call.given[at], value, node)
        for name, base in self._bases:
            call.bases[name] = base(call)
        for n, made in self._views:
            found[n] = made(call)
        return changed + found if changed else found

    def source(self, call: ResultContext, found: Sequence[Any], source: CallSource) -> list[str] | None:
        """The text of `results`, and the names that it gives; None where an argument had to be copied, or is not a
        tensor. ``resolve``: the results of ``call``."""
        changed = [self._named(make, source) for make in self._changed]
        rest = found[len(self._changed) :]
        names = [""] * len(rest)
        for n, make in self._own:
            names[n] = self._own_name(make, call, rest[n], source)
        copied: list[tuple[str, str]] = []
        for (at, _), make, name in zip(self._written, self._changed, changed, strict=True):
            if not is_torch(call.given[at]):
                return None
            if not _is_written(call.given[at], make(call)):
                copied.append((f"a{at}", name))
        if copied:  # in one launch, where types and strides allow it
            to, of = (", ".join(names) for names in zip(*copied, strict=True))
            copy = source.bind("foreach_copy", import_module("torch")._foreach_copy_)
            source.add(f"{copy}([{to}], [{of}])", [x for pair in copied for x in pair])
        bases: dict[str, tuple[str, str]] = {}
        for n, make in self._views:
            root, base, _ = cast("partial[Any]", make).args
            if root not in bases:
                pair = self._base_names(root, base, call, source)
                if pair is None:
                    return None
                bases[root] = pair
            base, whole = bases[root]
            place = self._places[n]
            names[n] = whole
            if place is not None:
                shape, strides, start = place
                names[n] = f"w{n}"
                at = f"{base}.storage_offset() + {start}"
                source.add(f"w{n} = {base}.as_strided({shape}, {strides}, {at})", [base], [f"w{n}"])
        return changed + names

    def _base_names(self, root: str, base: Any, call: ResultContext, source: CallSource) -> tuple[str, str] | None:
        """The base that views are made of, and what is returned for it itself."""
        lying: Any = next((b for name, b in self._bases if name == root), base)
        if lying.func is not _lying:
            name = self._own_name(lying.args[0], call, call.bases[root][1], source)
            return name, name
        slot = lying.args[0]
        given, whole = call.given[slot], call.bases[root][1]
        if whole is given:
            return source.result(slot), f"a{slot}"
        # The argument without its gradient; else it had to be copied.
        same = is_torch(given) and is_torch(whole) and whole.device == given.device
        if not same or memory_of(whole) != memory_of(given) or not source.lies_as(source.result(slot), whole):
            return None
        return source.result(slot), source.result(slot)

    @staticmethod
    def _named(make: Make, source: CallSource) -> str:
        if isinstance(make, partial):
            return source.result(cast("Any", make).args[0])
        if isinstance(make, SizeResult):
            return source.number(make.size)
        return source.constant(make(ResultContext((), [])))

    def _own_name(self, make: Make, call: ResultContext, result: Any, source: CallSource) -> str:
        """A result in memory of its own: a value as it is, with strides of axes of one element, or a copy of it."""
        if not isinstance(make, partial) or make.func is _of_slot:
            return self._named(cast("Make", make), source)
        slot, back = cast("tuple[int, Any]", make.args)
        name = source.result(slot)
        mine = result is call.values[slot]
        if mine and source.lies_as(name, result):
            return name
        if mine and source.reinterpret is not None:  # strides of axes of one element
            text = source.shown(name, result, 0)
            source.add(f"o{slot}_1 = {text}", [name], [f"o{slot}_1"])
            return f"o{slot}_1"
        source.bind(f"back{slot}", back)
        source.add(f"o{slot}_{mine:d} = back{slot}({name}, {mine})", [name], [f"o{slot}_{mine:d}"])
        return f"o{slot}_{mine:d}"

    def gives(self, given: Sequence[Any]) -> tuple[ResultSource, ...] | None:
        """How each result is found, where each is an array that kernels have just made and that lies as captured, one
        of the arguments ``given`` that does, or a number; else None."""
        if self.watches or self._changed or self._written or self._bases:
            return None
        found: list[ResultSource | None] = [None] * (len(self._own) + len(self._views))
        for n, make in self._own:
            if not isinstance(make, partial):
                found[n] = ResultSource("value", n, make(ResultContext(given, [])))
            elif make.func is _fresh_result:
                found[n] = ResultSource("kernels", cast("int", make.args[0]))
        for n, make in self._views:
            _, base, view = cast("partial[Any]", make).args
            slot = base.args[0]
            if base.func is _lying and base(ResultContext(given, list(given)))[1] is given[slot]:
                found[n] = ResultSource("argument", slot, view)
            elif base.func is _twice and isinstance(slot, partial) and slot.func is _fresh_result:
                found[n] = ResultSource("kernels", cast("int", slot.args[0]), view)
        made = [g for g in found if g is not None]
        return tuple(made) if len(made) == len(found) else None

    def _value(self, value: object) -> Make:
        """A result by its name; a size as a number."""
        if isinstance(value, Ref):
            meta = self._program[value.name].meta
            if isinstance(meta, Expr):
                return SizeResult(meta, self._env)
            slot = self._slots.get(value.name)
            return _constant_result(meta) if slot is None else partial(_of_slot, slot)
        return SizeResult(value, self._env) if isinstance(value, Expr) else _constant_result(value)

    def _result(self, value: object) -> Make:
        """A result in memory of its own."""
        name = value.name if isinstance(value, Ref) else None
        meta = self._meta(name)
        if name is None or name not in self._slots or isinstance(self._program[name].meta, Expr):
            return self._value(value)
        back = self._space.back(meta)
        return partial(_watched if self.watches else _fresh_result, self._slots[name], back)

    def _view(self, shared: Shared) -> Make:
        """A result in the memory of an argument, or of what several results lie in."""
        root, meta = shared.root, self._meta(shared.root)
        if self._program[root].kind != "call" and meta is not None:
            base = self._argument(root, meta)
        else:
            base = partial(_twice, self._result(Ref(root)))
        at = self._at(shared)
        view = None if at is None else self._space.as_view(*at)
        return partial(_viewed, root, base, view)

    def _at(self, shared: Shared) -> Place | None:
        """The place of a view in its base; None for the base itself."""
        if shared.meta is self._program[shared.root].meta:
            return None
        return place_of(shared.of.at(self._env), shared.meta.at(self._env))

    def _argument(self, name: str, meta: TensorMeta) -> Callable[[ResultContext], Base]:
        """The argument itself where it lies as captured, else a copy that does."""
        return partial(_lying, self._slots[name], self._space.to_space, self._space.relayout(meta.at(self._env)))

    def _meta(self, name: str | None) -> TensorMeta | None:
        """Shape and strides of a node, as captured."""
        meta = None if name is None else self._program[name].meta
        return meta.at(self._env) if isinstance(meta, TensorMeta) else None


@dataclass(frozen=True, slots=True)
class SizeResult:
    """A result that is a number, computed of sizes."""

    size: Expr
    env: Mapping[str, int]

    def __call__(self, _: ResultContext) -> int:
        return self.size.evaluate(self.env)


def _constant_result(value: object) -> Make:
    return lambda _: value


def _of_slot(slot: int, call: ResultContext) -> Any:
    return call.values[slot]


def _fresh_result(slot: int, back: Callable[[Any, bool], Any], call: ResultContext) -> Any:
    return back(call.values[slot], True)


def _watched(slot: int, back: Callable[[Any, bool], Any], call: ResultContext) -> Any:
    found = call.values[slot]
    if not (is_torch(found) or isinstance(found, np.ndarray)):
        return found
    made = back(found, memory_of(found) not in call.theirs)
    call.theirs.add(memory_of(made))
    return made


def _twice(made: Make, call: ResultContext) -> Base:
    found = made(call)
    return found, found


def _viewed(
    root: str, base: Callable[[ResultContext], Base], view: Callable[[Any], Any] | None, call: ResultContext
) -> Any:
    found = call.bases.get(root)
    if found is None:
        found = call.bases[root] = base(call)
    return found[1] if view is None else view(found[0])


def _lying(slot: int, take: Callable[[object], Any], lying: Callable[[Any], Any], call: ResultContext) -> Base:
    given = call.given[slot]
    taken = take(given)
    found = lying(taken)
    mine = found is taken and type(given) is type(taken) and memory_of(given) == memory_of(taken)
    return found, given if mine else found


def memory_of(value: Any) -> int:
    """The key by which two arrays are known to share memory."""
    if is_torch(value):
        return value.untyped_storage().data_ptr()
    base: Any = value
    while isinstance(getattr(base, "base", None), np.ndarray):
        base = base.base
    return id(base)


def _is_written(given: object, value: object) -> bool:
    """Whether the new value of an argument is the argument, whose memory kernels have written."""
    if not (is_torch(given) and is_torch(value)):
        return given is value
    same = given.data_ptr() == value.data_ptr() and given.stride() == value.stride()
    return same and given.device == value.device


def _write_back(given: object, value: object, node: Node) -> None:
    """Tensors that the program changes in place are changed in the tensor given."""
    if _is_written(given, value):
        return
    if isinstance(given, np.ndarray):
        given[...] = to_numpy(value) if is_torch(value) else value
    elif is_torch(given):
        given.detach().copy_(value if is_torch(value) else to_torch(np.asarray(value)))
    else:
        raise FrontendError(f"{where_of(node)}: the program changes it, and it is not a tensor")


def sizes_of(program: CapturedProgram, given: Mapping[str, object], values: Mapping[str, Any]) -> dict[str, int]:
    """Values of the symbols of sizes; one error with everything that arguments contradict."""
    env: dict[str, int] = {}
    sizes = program.sizes
    pairs: list[tuple[str, tuple[Size, ...], tuple[int, ...]]] = []
    for name, value in given.items():
        meta = program[name].meta
        if isinstance(meta, Expr) and isinstance(value, int):
            pairs.append((name, (meta,), (value,)))
        elif isinstance(meta, TensorMeta):
            pairs.append((name, meta.shape, tuple(values[name].shape)))
    wrong = [w for name, wanted, sizes_given in pairs for w in sizes.bind(wanted, sizes_given, name, env)]
    if not wrong:
        if len(env) < len(sizes.symbols):
            for name, wanted, sizes_given in pairs:  # a second time: a sum of two symbols needs one of them first
                sizes.bind(wanted, sizes_given, name, env)
        wrong = [w for name, wanted, got in pairs for w in sizes.misfits(wanted, got, name, env)]
        wrong += sizes.broken(env)
    if wrong:
        dynamic = "sizes must satisfy what torch.export assumed" if sizes.symbols else "sizes are fixed when captured"
        raise FrontendError(
            f"{program.name} is not captured for these sizes: {wrong[0]}",
            because=wrong[1:],
            hint=f"{dynamic}: from_torch(..., dynamic_shapes=...) makes axes dynamic",
        )
    return env


def _is_nested_int(value: object) -> bool:
    """Whether a value is the size that torch gives a ragged axis: equal to that of tensors with the same offsets."""
    asked = getattr(getattr(value, "node", None), "is_nested_int", None)
    return callable(asked) and asked() is True


def check_argument(node: Node, value: object, taken: Any, space: ArraySpace) -> None:
    """A run-time argument has the shape and type captured, or is the number that was."""
    meta = node.meta
    if isinstance(meta, Expr):
        if _is_nested_int(value):  # the name of a ragged axis, which stands for no number
            return
        if isinstance(value, bool) or not isinstance(value, int):
            raise FrontendError(f"{where_of(node)}: got {type(value).__name__}, not the integer {meta}")
        return
    if not isinstance(meta, TensorMeta):
        if value is not meta and value != meta:
            raise FrontendError(f"{where_of(node)}: captured for the value {meta!r}, got another")
        return
    if taken is None:
        raise FrontendError(f"{where_of(node)}: got {type(value).__name__}, not a tensor or an array")
    shape = tuple(taken.shape)
    fits = len(shape) == len(meta.shape) and all(isinstance(w, Expr) or w == n for w, n in zip(meta.shape, shape))
    if not fits or space.dtype(taken) != meta.dtype:
        raise FrontendError(
            f"{where_of(node)}: captured for {meta}, got {space.dtype(taken)}{shape}",
            hint="sizes and types are those of the capture, but for sizes made free by dynamic_shapes=...",
        )
