"""Value numbering against an interpreter: equal numbers are equal values, whatever is set again, under conditions."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from idgraph.arith import symbol
from idgraph.kernel.def_use import Effects, all_sets
from idgraph.kernel.ir import Accumulate, Compute, Constant, If, Index, Let, Local, Operand, Select, Stmt
from idgraph.kernel.ssa import Renamer
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.cse_dce import once_each, without_dead

NAMES = "abcdef"
I = symbol("i", 0, 3)  # noqa: E741 - the condition's variable
State = dict[str, int]


def _value(o: Operand, state: State, i: int) -> int:
    match o:
        case Local(name):
            return state[name]
        case Constant(value):
            return int(value)
        case Index(e):
            return e.evaluate({"i": i, **{n: state[n] for n in e.names if n != "i"}})


def _run(body: Sequence[Stmt], state: State, i: int) -> None:
    """Run the statements, by the definition of each."""
    for s in body:
        match s:
            case Compute(local, op, operands):
                x = [_value(o, state, i) for o in operands]
                state[local.name] = {"add": sum(x), "neg": -x[0], "cast": x[0]}[op]
            case Select(local, cases, default):
                held = (o for c, o in cases if c.evaluate({"i": i}))
                state[local.name] = _value(next(held, default), state, i)
            case Let(name, value):
                state[name] = _value(value, state, i)
            case Accumulate(acc, "sum", value):
                state[acc.name] += _value(value, state, i)
            case If(condition, inner):
                if condition.evaluate({"i": i}):
                    _run(inner, state, i)
            case _:
                raise AssertionError(s)


def _random(r: random.Random, depth: int = 0) -> Stmt:
    def local() -> Local:
        return Local(r.choice(NAMES), "int64")

    def operand() -> Operand:
        e = symbol(r.choice(NAMES)) + r.randint(0, 1)
        return r.choice([local(), local(), local(), Constant(r.randint(0, 1)), Index(e), Index(I)])

    match r.randint(0, 7):
        case 0 if depth < 2:
            return If(r.randint(1, 3) > I, tuple(_random(r, depth + 1) for _ in range(r.randint(1, 4))))
        case 1:
            return Accumulate(local(), "sum", operand())
        case 2:
            return Let(r.choice(NAMES), operand())
        case 3:
            return Select(local(), ((I < 2, operand()),) if r.random() < 0.6 else (), operand())
        case 4:
            return Compute(local(), "cast", (local(),), "int64")
        case 5:
            return Compute(local(), "neg", (operand(),), "int64")
        case _:
            return Compute(local(), "add", (operand(), operand()), "int64")


@pytest.mark.parametrize("seed", range(300))
def test_equal_numbers_are_equal_values(seed: int) -> None:
    r = random.Random(seed)
    body = [_random(r) for _ in range(r.randint(2, 14))]
    values = ValueNumbering()
    starts = [{n: r.randint(-9, 9) for n in NAMES} for _ in range(3)]
    states = [(dict(s), i) for s in starts for i in range(4)]
    for s in body:
        if isinstance(s, If):
            values.forget(all_sets(s.body))
        else:
            values.define(s)
        for state, i in states:
            _run((s,), state, i)
        for a in NAMES:
            for b in NAMES:
                x, y = Local(a, "int64"), Local(b, "int64")
                if values.number(x) == values.number(y):
                    assert all(state[a] == state[b] for state, _ in states), (a, b, body)
            home = values.home(Local(a, "int64"))
            assert all(state[a] == state[home.name] for state, _ in states)


def test_an_index_of_a_variable_that_is_set_again_is_another_value() -> None:
    a, x, y = (Local(n, "int64") for n in "axy")
    e = Index(symbol("a") + 1)
    values = ValueNumbering()
    for s in (Compute(a, "neg", (a,), "int64"), Compute(x, "neg", (e,), "int64"), Compute(y, "neg", (e,), "int64")):
        values.define(s)
    assert values.number(x) == values.number(y)
    values.define(Compute(a, "neg", (a,), "int64"))
    values.define(Compute(y, "neg", (e,), "int64"))
    assert values.number(x) != values.number(y)


def test_code_without_dead_values_computes_what_is_needed() -> None:
    dropped = 0
    for seed in range(300):
        r = random.Random(seed)
        body = [_random(r) for _ in range(r.randint(2, 14))]
        needed = set(r.sample(NAMES, r.randint(1, 3)))
        short = without_dead(body, set(needed))
        dropped += len(body) - len(short)
        for i in range(4):
            start: State = {n: r.randint(-9, 9) for n in NAMES}
            found, want = dict(start), dict(start)
            _run(short, found, i)
            _run(body, want, i)
            assert {n: found[n] for n in needed} == {n: want[n] for n in needed}, (needed, body, short)
    assert dropped > 300


@pytest.mark.parametrize("seed", range(300))
def test_straight_code_with_equal_values_once_computes_the_same(seed: int) -> None:
    r = random.Random(seed)
    body = [_random(r) for _ in range(r.randint(2, 14))]
    out = [Accumulate(Local(f"out_{n}", "int64"), "sum", Local(n, "int64")) for n in NAMES]  # kept: it adds up
    short = once_each([*body, *out])
    for i in range(4):
        first: State = {**{n: r.randint(-9, 9) for n in NAMES}, **{f"out_{n}": 0 for n in NAMES}}
        found, want = dict(first), dict(first)
        _run(short, found, i)
        _run([*body, *out], want, i)
        assert {n: found[f"out_{n}"] for n in NAMES} == {n: want[f"out_{n}"] for n in NAMES}


@pytest.mark.parametrize("seed", range(300))
def test_statements_that_wait_for_nothing_may_change_places(seed: int) -> None:
    r = random.Random(seed)
    a, b = (_random(r), _random(r))
    if Effects.of((b,)).waits_for(Effects.of((a,))):
        return
    for i in range(4):
        start: State = {n: r.randint(-9, 9) for n in NAMES}
        found, want = dict(start), dict(start)
        _run((b, a), found, i)
        _run((a, b), want, i)
        assert found == want, (a, b)


def test_names_that_are_given_are_taken() -> None:
    names = Renamer({"a"})
    x = Local("a", "int64")
    first, second = names.unique(x), names.unique(x)
    assert len({"a", first.name, second.name}) == 3
    assert names.operand(x) == second and names.local(Local("b", "int64")).name == "b"
    assert names.unique(Local("b", "int64")).name == "b" and names.unique(Local("b", "int64")).name != "b"
