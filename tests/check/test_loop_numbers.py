"""TorchInductor's loop bodies, changed before they are read: another number than the graph's is refuted."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import idgraph as ig
from idgraph.check import inductor_capture as capture
from idgraph.check import loop_points

torch: Any = pytest.importorskip("torch")
F: Any = torch.nn.functional
Notes: Any = capture.Notes
Args = tuple[Any, ...]


def rand(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def calls(target: str, change: Callable[[Args], Args], other: str = "") -> Callable[[Any], None]:
    """A change of the arguments, or of the name, of each call of an operation in a body."""

    def changed(body: Any) -> None:
        for block in (body.root_block, *body.subblocks.values()):
            for n in block.graph.nodes:
                if n.op == "call_method" and n.target == target:
                    n.args, n.target = change(tuple(n.args)), other or target

    return changed


def fills(body: Any) -> None:
    for n in body.root_block.graph.nodes:
        if str(n.target).startswith("masked"):
            n.args = (n.args[0], n.args[1] + 1)


def addresses(body: Any) -> None:
    body.indexing_exprs = {k: x + 4 if k == "index0" else x for k, x in body.indexing_exprs.items()}


def cast_to(target: str, dtype: Any, at: int = 2) -> Callable[[Any], None]:
    """A change of the element type that an operation makes."""
    return calls(target, lambda a: (*a[:at], dtype, *a[at + 1 :]))


def narrowed(target: str, dtype: Any) -> Callable[[Any], None]:
    """A conversion planted behind each call of an operation."""

    def changed(body: Any) -> None:
        graph = body.root_block.graph
        for n in [n for n in graph.nodes if n.target == target]:
            users = list(n.users)
            with graph.inserting_after(n):
                way = {n: graph.call_method("to_dtype", (n.args[0], n, dtype))}
            for user in users:
                user.args = torch.fx.node.map_arg(user.args, lambda x, way=way: way.get(x, x))

    return changed


def dropped(dtype: Any) -> Callable[[Any], None]:
    """Each conversion to a type is left out."""

    def changed(body: Any) -> None:
        for n in body.root_block.graph.nodes:
            if n.target == "to_dtype" and n.args[2] == dtype:
                n.replace_all_uses_with(n.args[1])

    return changed


INTS = torch.randint(-9, 9, (4, 6), generator=torch.Generator().manual_seed(0))
# Element types: where the numbers that are given show no difference, and others do.
TYPES: dict[str, tuple[Callable[..., Any], Args, Callable[[Any], None]]] = {
    "wrapped at 32 bits": (lambda x: x.to(torch.int64) * x, (INTS.int(),), dropped(torch.int64)),
    "wrapped at 32 bits, of floats": (
        lambda x: x.to(torch.int64) * 3, (rand(4, 6),), cast_to("to_dtype", torch.int32)
    ),
    "wrapped on the way": (lambda x, y: x + y, (INTS.short(), INTS.short()), narrowed("add", torch.int8)),
    "another sign": (lambda x: x.to(torch.uint8).to(torch.int32) + 1, (INTS.int(),), cast_to("to_dtype", torch.int8)),
    "not wrapped": (lambda x: x.to(torch.uint8).to(torch.int32) + 1, (INTS.int(),), dropped(torch.uint8)),
    "wrapped in a sum": (lambda x: x.sum(1), (INTS.int().repeat(1, 9),), cast_to("reduction", torch.int32, 1)),
    "a sum in floats": (
        lambda x: x.sum(1, dtype=torch.int32), (INTS.int().repeat(1, 9),), cast_to("reduction", torch.float64, 1)
    ),
    "a wrapped constant": (lambda x: x * 200, (INTS,), cast_to("constant", torch.int8)),
    "integers rounded": (lambda x: x + 1, (INTS,), narrowed("load", torch.float32)),
    "64 bits rounded to 32": (lambda x: x.exp() * 1.5, (rand(4, 6).double(),), narrowed("load", torch.float32)),
    "32 bits rounded to 16": (lambda x: x * 2, (rand(4, 6),), narrowed("load", torch.float16)),
    "bits of a mantissa": (lambda x: x * 2, (rand(4, 6),), narrowed("load", torch.bfloat16)),
    "cut after": (
        lambda x: x.bfloat16().floor().to(torch.int32), (INTS,), cast_to("to_dtype", torch.int8),
    ),
    "not cut": (lambda x: x.to(torch.int32).float() * 2, (rand(4, 6),), dropped(torch.int32)),
    "not made true": (lambda x: x.to(torch.bool).float() * 2, (rand(4, 6),), dropped(torch.bool)),
    "true of the last byte": (
        lambda x: x.to(torch.bool).float() * 2, (INTS,), narrowed("load", torch.uint8)
    ),
}  # fmt: skip


def bare(*names: str) -> Callable[[Any], None]:
    """Each call of these operations is left out: its first operand stands for it (of a ``where``, the first choice)."""

    def changed(body: Any) -> None:
        for n in body.root_block.graph.nodes:
            if n.op == "call_method" and n.target in names:
                n.replace_all_uses_with(n.args[2 if n.target == "where" else 1])

    return changed


AT = torch.tensor([1, 0, 3, 2])
# Indices that the graph brings into range and the body does not: those that are given are in range.
INDICES: dict[str, tuple[Callable[..., Any], Args, Callable[[Any], None]]] = {
    "not clamped": (lambda x, i: x[i.clamp(0, 3)] + 1, (rand(4, 6), AT), bare("maximum", "minimum")),
    "not limited": (lambda x, i: x[i.clamp(max=3)] + 1, (rand(4, 6), AT), bare("minimum")),
    "no remainder": (lambda x, i: x[i % 4] + 1, (rand(4, 6), AT), bare("remainder", "where")),
    "not chosen": (lambda x, i: x[torch.where(i < 4, i, 0)] + 1, (rand(4, 6), AT), bare("where")),
    "not clamped, gathered": (
        lambda x, i: x.gather(0, i.clamp(0, 3)) + 1, (rand(4, 6), AT.reshape(2, 2)), bare("maximum", "minimum")
    ),
    "not clamped, embedded": (
        lambda x, i: F.embedding(i.clamp(0, 3), x) * 2, (rand(4, 6), AT), bare("maximum", "minimum")
    ),
    "not clamped, scattered": (
        lambda x, i, v: x.scatter_add(0, i.clamp(0, 3), v), (rand(4, 6), AT.reshape(2, 2), rand(2, 2)),
        bare("maximum", "minimum"),
    ),
}  # fmt: skip


def updated_part(x: Any) -> Any:
    return torch.cat([x.index_put((torch.tensor([0, 1, 0]),), torch.ones(()), accumulate=True), x])


WRONG: dict[str, tuple[Callable[..., Any], Args, Callable[[Any], None]]] = {
    "an update of a cat's part": (updated_part, (rand(3, 4),), calls("constant", lambda a: (a[0], 1.5 * a[1], a[2]))),
    "a cat's part that is stored again": (
        updated_part, (rand(3, 4),), calls("store", lambda a: (*a[:4], None) if len(a) > 4 else a),
    ),
    "a constant": (lambda x: x * 1.5, (rand(4, 6),), calls("constant", lambda a: (a[0], 1.51, a[2]))),
    "a small constant": (
        lambda x: F.layer_norm(x, (6,)), (rand(4, 6),),
        calls("constant", lambda a: (a[0], a[1] * 2 if a[1] == 1e-5 else a[1], a[2])),
    ),
    "an operation": (lambda x: x + x.flip(0), (rand(4, 6),), calls("add", lambda a: a, "sub")),
    "a bound": (lambda x: torch.where(x >= 1.0, x, 0.0), (rand(4, 6),), calls("ge", lambda a: a, "gt")),
    "a narrow type": (
        lambda x: x.to(torch.int32) + 1, (rand(4, 6),), calls("to_dtype", lambda a: (*a[:2], torch.int8, *a[3:])),
    ),
    "branches exchanged": (
        lambda x: torch.where(x > 0, x, x * 2), (rand(4, 6),), calls("where", lambda a: (*a[:2], a[3], a[2])),
    ),
    "a pad's number": (lambda x: F.pad(x, (1, 1), value=0.5), (rand(4, 6),), fills),
    "added to nothing": (lambda x: x.sin(), (rand(4, 6),), calls("store", lambda a: (*a[:4], "atomic_add"))),
    "outside of its memory": (lambda x: x.sin(), (rand(4),), addresses),
    "the smallest for the largest": (
        lambda x: x.argmax(1), (rand(4, 60),), calls("reduction", lambda a: (*a[:3], "argmin", *a[4:])),
    ),
}  # fmt: skip


def checked(
    fn: Callable[..., Any], args: Args, change: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> ig.check.CheckReport:
    read = capture._GraphImporter.read  # pyright: ignore[reportPrivateUsage]

    def planted(self: Any) -> Any:
        for top in self.graph.scheduler.nodes:
            for s in top.get_nodes():
                if getattr(s, "_body", None) is not None:
                    change(s._body)
        return read(self)

    monkeypatch.setattr(capture._GraphImporter, "read", planted)  # pyright: ignore[reportPrivateUsage]
    return ig.check.inductor(fn, args)


@pytest.mark.parametrize("name", [*WRONG, *TYPES, *INDICES])
def test_a_body_that_stores_another_number_is_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, args, change = (WRONG | TYPES | INDICES)[name]
    r = checked(fn, args, change, monkeypatch)
    rows = [x for x in r.refuted if "number than the graph" in x.because or "outside of a memory" in x.because]
    assert rows and all(x.stage == "after" and x.counterexample is not None for x in rows), str(r)


def test_a_float_that_an_integer_type_has_not_is_any_integer_there() -> None:
    """The machine, and how a loop is vectorized, say which: a difference of it is nobody's fault."""
    x = torch.tensor([3e9, math.inf, -2.5]).repeat(20)
    one, other = (loop_points.converted(torch, x, torch.int32, torch.Generator().manual_seed(k)) for k in (0, 1))
    assert bool((one != other)[0::3].any()) and bool((one != other)[1::3].any())
    assert one[2::3].tolist() == other[2::3].tolist() == [-2] * 20


def test_each_integer_that_a_float_may_be_is_tried() -> None:
    """Turns of one noise: of each float out of range every integer once, so that no element is left to chance."""
    x = torch.tensor([3e9, math.inf, -2.5]).repeat(20)
    turns = [
        loop_points.converted(torch, x, torch.int32, torch.Generator().manual_seed(0), k)
        for k in range(loop_points.UNDEFINED)
    ]
    numbers = torch.stack(turns).sort(0).values
    assert bool((numbers[:, 0::3] == numbers[:, :1]).all()) and bool((numbers[:, 1::3] == numbers[:, :1]).all())
    assert bool((numbers[1:, 0] > numbers[:-1, 0]).all()) and bool((numbers[:, 2::3] == -2).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("n", range(1, 5))
def test_what_is_made_of_a_float_out_of_range_is_left_open(dtype: Any, n: int) -> None:
    """A sum with it, and the element that it points to, may be any."""
    x = (rand(n + 1, 6) * 3).to(dtype)
    for fn in (lambda x: (x * 3).to(torch.int16) + x, lambda x: x.scatter_add(0, x.long().abs() % x.shape[0], x)):
        assert not ig.check.inductor(fn, (x,)).refuted


def twice(x: Any, i: Any, v: Any) -> Any:
    return x.scatter_reduce(0, i, v, "sum", include_self=False)


RIGHT: dict[str, tuple[Callable[..., Any], Args]] = {
    "parts of a cat": (lambda x: torch.cat([x * k for k in range(6)], 0) + 1, (rand(3, 8),)),
    "an update of a cat's part": (updated_part, (rand(3, 4),)),
    "a list": (lambda x, y: torch._foreach_add([x, y], [y, x]), (rand(3, 5), rand(3, 5))),
    "an expanded argument": (lambda x: x.expand(3, 4) * 2, (rand(1, 4),)),
    "integers that wrap": (lambda u: u * 2 - 1, (torch.arange(255).to(torch.uint8),)),
    "moments": (lambda x: torch.var_mean(x, 1), (rand(6, 9),)),
    "half": (lambda x: x.bfloat16().softmax(1), (rand(6, 9),)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2) + 1, (rand(1, 2, 3, 4),)),
    "numbers of a body": (lambda x: x * torch.tensor([1.0, 2.0, 3.0]), (rand(2, 3),)),
    "places of a body": (lambda x: x[torch.tensor([2, 0, 1])] + 1, (rand(3, 3),)),
    "an axis of one": (lambda x: x.roll(1, 0).flip(1) + x, (rand(1, 5),)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_bodies_store_the_numbers_of_the_graph(name: str) -> None:
    fn, args = RIGHT[name]
    r = ig.check.inductor(fn, args)
    assert r.ok and r.decided, str(r)
    assert any(x.verdict == "tested" and x.because.startswith("loops: ") for x in r.rows)


def test_a_place_that_a_body_spells_wrong_is_another_element(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = calls("constant", lambda a: (a[0], 0 if a[1] == 2 and a[2] == torch.int64 else a[1], a[2]))
    r = checked(lambda x: x[torch.tensor([2, 0, 1])] + 1, (rand(3, 3),), wrong, monkeypatch)
    assert any(x.because == "another element than the program means" for x in r.refuted), str(r)


def test_a_step_on_the_way_to_a_scatter_is_not_refuted() -> None:
    """Inductor writes zeros where entries go, then adds: two updates of one operation."""
    r = ig.check.inductor(twice, (rand(5, 4), torch.tensor([[0, 1, 2, 1], [0, 0, 2, 3]]), rand(2, 4)))
    assert r.ok, str(r)


def test_an_index_that_is_not_counted_from_the_end_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(self: Any, value: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> Any:
        return Notes.indirect_indexing(self, value, size, check, False)

    monkeypatch.setattr(capture, "Notes", type("Wrong", (Notes,), {"indirect_indexing": bare}))
    assert ig.check.inductor(lambda x, i: x[i] + 1, (rand(9, 6), torch.arange(4))).refuted
    assert ig.check.inductor(lambda x, i: x.gather(0, i) + 1, (rand(9, 6), torch.arange(8).reshape(2, 4))).decided


def test_an_offset_into_a_pad_is_out_of_range() -> None:
    """Places of a scatter that are computed do not count from the end: offsets of a pool give some below 0."""
    x = rand(1, 2, 7, 8).requires_grad_()
    r = ig.check.inductor(lambda x: F.max_pool2d(x, 3, 2, 1), (x,))
    assert r.ok and r.decided, str(r)
