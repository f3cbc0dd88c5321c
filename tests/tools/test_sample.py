"""A run on one's own machine tries a part of the costly cases, another one in each run, and the CI all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.sample import CHOSEN, SHARE, left_out, seed_of

ArgsSource = pytest.Config.ArgsSource


def item(nodeid: str, *marks: str) -> Any:
    def mark(name: str) -> str | None:
        return name if name in marks else None

    return SimpleNamespace(nodeid=nodeid, get_closest_marker=mark)


def config(
    source: Any = ArgsSource.TESTPATHS, worker: dict[str, str | None] | None = None, *,
    keyword: str = "", markexpr: str = "not nightly", profile: str | None = None,
) -> Any:  # fmt: skip
    known: dict[str, object] = {
        "keyword": keyword, "markexpr": markexpr, "--hypothesis-profile": profile, "randomly_seed": 7,
    }  # fmt: skip

    def option(name: str, default: object = None) -> object:
        return known.get(name, default)

    found = SimpleNamespace(args_source=source, getoption=option)
    if worker is not None:
        found.workerinput = worker
    return found


@pytest.mark.parametrize("count", [1, 2, SHARE, 2 * SHARE, 2 * SHARE + 1])
def test_one_case_in_so_many_is_tried_and_each_in_some_run(count: int) -> None:
    cases = [item(f"a.py::test_f[{n}]", "sampled") for n in range(count)]
    others = [item("a.py::test_g[1]"), item("a.py::test_h", "slow")]
    tried: set[str] = set()
    for seed in range(100):
        out = {x.nodeid for x in left_out([*cases, *others], str(seed))}
        assert out == {x.nodeid for x in left_out([*others, *reversed(cases)], str(seed))}  # in whatever order
        kept = {x.nodeid for x in cases} - out
        assert len(kept) == -(-count // SHARE) and out < {x.nodeid for x in [*cases, *others]}
        tried |= kept
    assert tried == {x.nodeid for x in cases}


def test_each_function_has_its_own_choice() -> None:
    cases = [item(f"a.py::{name}[{n}]", "sampled") for name in ("f", "g") for n in range(3 * SHARE)]
    out = [x.nodeid for x in left_out(cases, "0")]
    assert [n.partition("[")[2] for n in out if "::f" in n] != [n.partition("[")[2] for n in out if "::g" in n]


def test_a_thorough_one_is_left_to_the_ci() -> None:
    assert [x.nodeid for x in left_out([item("a.py::f", "thorough"), item("a.py::g[1]")], "0")] == ["a.py::f"]


@pytest.mark.parametrize(
    ("given", "seed"),
    [
        (config(), "7"),
        (config(profile="default"), "7"),
        (config(markexpr="not slow and not nightly"), "7"),
        (config(profile="ci"), None),
        (config(profile="nightly"), None),
        (config(ArgsSource.ARGS), None),
        (config(keyword="rope"), None),
        (config(markexpr="gpu"), None),
        (config(ArgsSource.ARGS, {CHOSEN: "9"}), "9"),
        (config(ArgsSource.TESTPATHS, {CHOSEN: None}), None),
    ],
)
def test_whoever_names_tests_gets_all_of_them(given: Any, seed: str | None) -> None:
    """Files, `-k`, `-m` or another profile; workers do as they are told."""
    assert seed_of(given) == seed
