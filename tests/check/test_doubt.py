"""Nothing true is refuted: a difference is told when it is sure, and else the row is unknown and says why."""

# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any

import pytest

import idgraph as ig
from idgraph.arith import TRUE, as_expr, maximum, minimum, symbol, where
from idgraph.check import confirmation as confirm
from idgraph.check import decide as nest_decisions
from idgraph.check.confirmation import confirm_difference, reads_by_evaluation
from idgraph.check.enumeration import Gap, Space, bind
from idgraph.check.index_values import ValueTable, unwrapped, wrapped_parts
from idgraph.check.program import BufferLayout
from idgraph.check.program_json import read_program
from idgraph.check.semantics import ElementRead
from idgraph.check.store_coverage import overlaps

ROTATE = """fusion "rotate" {
  x = input(shape=(4, 8), dtype="float32")
  y = roll(x, shifts=(3,), dims=(1,))
  output y
}"""


def rolled(index: str) -> dict[str, Any]:
    write = {"buffer": "y", "index": "i*8 + j", "reads": [{"buffer": "x", "index": index}]}
    return {"program": ROTATE, "nests": [{"name": "k", "loops": [["i", 4], ["j", 8]], "writes": [write]}]}


def nest_by_nest(data: dict[str, Any]) -> ig.check.CheckReport:
    """Without the run of the whole program, which would decide it."""
    return nest_decisions.decide(read_program(data))


def test_a_difference_that_numpy_alone_sees_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either judge can stop a refutation: one that counts again, one that knows the operations by NumPy."""
    assert ig.check.program(rolled("i*8 + (j + 4)%8")).refuted
    monkeypatch.setattr(nest_decisions, "compare", lambda *_: Gap({"i": 0, "j": 0}, 4, 5))
    monkeypatch.setattr(nest_decisions, "all_same", lambda *_: False)
    r = nest_by_nest(rolled("i*8 + (j + 5)%8"))  # it is right
    assert r.ok and "plain Python does not" in r.unknown[0].because
    monkeypatch.setattr(confirm, "confirm_difference", lambda *_: True)
    monkeypatch.setattr(nest_decisions, "compare", lambda *_: Gap({"i": 0, "j": 0}, 5, 4))
    r = nest_by_nest(rolled("i*8 + (j + 5)%8"))
    assert r.ok and "the reference" in r.unknown[0].because


def test_too_many_terms_to_count_again_are_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "MOST", 0)
    r = nest_by_nest(rolled("i*8 + (j + 4)%8"))
    assert r.ok and "too many terms" in r.unknown[0].because


def test_made_up_values_are_the_same_in_both_judges() -> None:
    """The plain judge makes up loaded values on its own: a number at a time, without NumPy."""
    table, i = ValueTable(), symbol("i", 0, 99)
    v = table.load("b", i * 3)
    p, q = table.place(v - 20, as_expr(50)), table.place(v % 7 - 7, as_expr(7))
    pool = confirm._pool(table)
    for k in range(100):
        env = {"i": k}
        confirm._bind(table, env, pool)
        found = bind(table, {"i": k})
        assert {n: int(found[n]) for n in (v.name, p.name, q.name)} == {n: env[n] for n in (v.name, p.name, q.name)}
        assert 0 <= env[p.name] < 50 and env[q.name] == env[v.name] % 7


def test_elements_are_counted_as_sets_or_as_multisets() -> None:
    r = symbol("r", 0, 3)
    once, twice = ElementRead("x", r, TRUE), ElementRead("x", r % 2, TRUE)
    halves = [ElementRead("x", r // 2, TRUE)]
    space = Space((), (("r", 4),), (("r", 4),), {}, multiset=True)
    assert confirm_difference(space, [once], [twice], ValueTable(), {})
    assert not confirm_difference(space, [twice], halves, ValueTable(), {})
    assert not confirm_difference(Space((), (("r", 4),), (("r", 2),), {}), [twice], [once], ValueTable(), {})


def test_the_walk_back_is_the_oracles() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6))
    i = f.input("i", shape=(3,), dtype="int64")
    moved = ig.pad(ig.permute(x, (1, 0)), (1, 0), 0.0)
    total = ig.sum(moved, 0)
    picked = ig.index_select(x, 0, i)
    chosen = ig.where(ig.lt(x, 0.0), x, 1.0)
    for t in (total, picked, chosen):
        f.output(t)

    def at(t: ig.Tensor, c: tuple[int, ...]) -> tuple[str, int] | None:
        return ("x", c[0] * 6 + c[1]) if t is x else None

    assert reads_by_evaluation(total, (1,), at, {}, itself=False) == ({("x", k) for k in range(6)}, False)
    assert reads_by_evaluation(total, (0,), at, {}, itself=False) == (set[tuple[str, int]](), False)
    assert reads_by_evaluation(picked, (0, 0), at, {}, itself=False) is None
    assert reads_by_evaluation(chosen, (2, 3), at, {}, itself=False) == ({("x", 15)}, True)


@pytest.mark.parametrize(
    ("shape", "strides", "wanted"),
    [
        ((2, 2), (1, 1), True), ((3, 4), (4, 1), False), ((3, 4), (1, 3), False), ((5, 3), (2, 1), True),
        ((5, 1), (1, 1), False),
    ],
)  # fmt: skip
def test_elements_that_lie_over_each_other(shape: tuple[int, ...], strides: tuple[int, ...], wanted: bool) -> None:
    made = BufferLayout("b", "t", tuple(map(as_expr, strides)))
    assert overlaps(made, [as_expr(n) for n in shape]) is wanted


def test_a_tensor_over_itself_is_refuted() -> None:
    data = rolled("i*8 + (j + 5)%8")
    data["buffers"] = {"x": {}, "y": {"strides": [1, 1], "after": "k"}}
    data["nests"][0]["writes"][0]["index"] = "i + j"
    r = ig.check.program(data)
    assert r.refuted and not all(ig.check.interpret(data, seed=s).right for s in range(5))
    assert "over each other" in nest_by_nest(data).unknown[0].because


@pytest.mark.parametrize("n", [1, 7, 50])
def test_forms_of_an_index_that_counts_from_the_end(n: int) -> None:
    """Each is a place of the same number, in each form of the wrap that the simplifier leaves."""
    v = symbol("v")
    clamped = minimum(maximum(v, -n), n - 1)
    for x in (
        where(v < 0, v + n, v), ig.simplify(where(clamped < 0, clamped + n, clamped)),
        where(v < 0, maximum(v, -n) + n, minimum(v, n - 1)), clamped % n,
    ):  # fmt: skip
        found = wrapped_parts(x)
        if not found:  # of an axis of one element only 0 is left
            assert n == 1
            continue
        ((it, size),) = found
        inner = unwrapped(it, size)
        for k in range(-n, n):
            assert int(size) == n and inner.evaluate({"v": k}) % n == k % n == x.evaluate({"v": k})


def test_a_scatter_that_entries_may_name_is_not_refuted() -> None:
    """The nest looks through a scatter of loaded places: which entries an element is made of is not known."""
    text = """fusion "f" {
  x = input(shape=(9,), dtype="float32")
  i = input(shape=(5,), dtype="int64")
  s = input(shape=(5,), dtype="float32")
  y = scatter_add(x, i, s, dim=0)
  z = exp(y)
  output z
}"""
    read = [{"buffer": "x", "index": "a"}]
    nest: dict[str, Any] = {"name": "k", "loops": [["a", 9]], "writes": [{"buffer": "z", "index": "a", "reads": read}]}
    r = ig.check.program({"program": text, "nests": [nest]})
    assert r.ok and not r.decided and "entries" in r.unknown[0].because


# programs that were refuted once, though they are right ---------------------------------------------------------------

torch: Any = pytest.importorskip("torch")


def grad(*shape: int) -> Any:
    return torch.randn(*shape, requires_grad=True)


def numbered(x: Any) -> Any:
    x = x.clone()
    x.index_put_((torch.arange(x.size(0)),), x * 2.0)
    return x.flip(0) + 1


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "remainder of a loaded index": (
        lambda x, i: torch.take_along_dim(x * 2, i, 0), lambda: (grad(7, 5), torch.randint(0, 7, (3, 5))),
    ),
    "softmax of a masked input": (lambda x: x.tril(1).softmax(-1), lambda: (grad(40, 40),)),
    "log softmax of a masked input": (
        lambda x: torch.where(x > 0, x, -1.0).triu().log_softmax(0), lambda: (grad(40, 40),),
    ),
    "embedding, clamped": (
        lambda w, i: torch.nn.functional.embedding(i, w, padding_idx=0) * 2,
        lambda: (grad(50, 12), torch.randint(0, 50, (3, 7))),
    ),
    "a number as an argument": (lambda x: (x * x).sum(), lambda: (grad(3000),)),
    "numbered entries": (numbered, lambda: (torch.randn(5, 7),)),
    "a constant index": (lambda x: x[:, [-1], :] + 1, lambda: (torch.randn(3, 4, 5),)),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "online"), [(name, False) for name in CASES] + [(name, True) for name in CASES if "softmax" in name]
)
def test_what_is_right_is_not_refuted(name: str, online: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, after, and in the Triton source; ``online``: a softmax in one pass, as on GPUs."""
    if online:
        passes: Any = pytest.importorskip("torch._inductor.fx_passes.post_grad")
        monkeypatch.setattr(passes, "prepare_softmax_extra_check", lambda _match: True)
    fn, args = CASES[name]
    options = {"unroll_reductions_threshold": 1}
    r = ig.check.inductor(fn, args(), source=True, options=options)
    left = [row for row in r.unknown if row.stage == "source" and "what it computes of them is not" in row.because]
    assert r.ok and list(r.unknown) == left, str(r)
    assert {row.stage for row in r.rows} == {"graph", "before", "after", "source"}


@pytest.mark.parametrize("first", [0, 1])
def test_a_sum_reads_the_maximum_that_its_softmax_has(first: int) -> None:
    """Inductor prepares a softmax in one node of two results: loops of the second may read the first."""
    from idgraph.check.inductor_capture import _functional

    importlib.import_module("torch._inductor.inductor_prims")
    graph: Any = torch.fx.Graph()
    x = graph.placeholder("x")
    both = graph.call_function(torch.ops.prims.prepare_softmax_online.default, (x, -1))
    made = {k: graph.call_function(operator.getitem, (both, k)) for k in (first, 1 - first)}
    graph.output((made[0], made[1]))
    for n in graph.nodes:
        n.meta["val"] = torch.zeros(6, 6 if n is x else 1)
    nodes, _ = _functional(torch, torch.fx.GraphModule(torch.nn.Module(), graph))
    named = {n.name: n for n in nodes}
    subtracted = named[f"{made[1].name}_sub"].args[1]
    assert str(subtracted.target) == "aten.amax.default"
    assert (subtracted is named[made[0].name]) == (first == 0)
