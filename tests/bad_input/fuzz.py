"""A fuzzer of the whole public surface: random callables, random right and wrong arguments, three promises.

Every public function, class and method is found by introspection. A call returns, or raises one `IdGraphError`; it
ends within a time limit; and a call that failed leaves the text of the fusion as it was.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import random
import signal
import sys
import tempfile
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np

import idgraph as ig
from idgraph.reports import metrics
from tests.bad_input.walk import INSIDE, RIGHT, Case

SECONDS = 5.0  # of processor time that a call may take: other work on the machine takes none of it
WAITED = 300.0  # after which a call waits for what does not come
ROOMS = ("check", "frontends", "fuse", "kernel", "layout", "reports", "schedule", "testing", "viz")
# Names that start processes, servers or test functions of their own; tests/sweeps, tests/cli and tests/emit call them.
ELSEWHERE = {"sweep", "tune", "from_torch", "Tuner", "given"}
BUILT_BY_USERS = {"Fusion", "IdModel", "KernelConfig", "Limits"}  # the other classes are what the library hands out
OF_SEQUENCES = {"Obstacles": {"index", "count"}}  # Python's own, with the errors of any sequence
PLAIN_ERRORS = (FileNotFoundError, IsADirectoryError, PermissionError, NotADirectoryError)  # of a path that is wrong
DUNDERS = (
    "__getitem__", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__truediv__", "__floordiv__", "__mod__",
    "__pow__", "__rpow__", "__and__", "__or__", "__xor__", "__lt__", "__ge__", "__matmul__",
)  # fmt: skip


class TooLong(BaseException):
    """The time limit of a call; no ``except Exception`` of the library catches it."""


class _Odd:
    """An object whose special methods raise."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")

    def __hash__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")


class _Endless:
    """A sequence without an end."""

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, at: int) -> int:
        return at


def hostile(c: Case) -> list[Any]:
    """Values of every kind, one fresh set for each call: iterators are used up."""
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    loop: list[Any] = []
    loop.append(loop)
    return [
        None, True, False, 0, 1, 2, 3, -1, -2, 4, 6, 24, 2**31, 2**62, -(2**63), 10**30, 10**5000, 2.5, 0.0, -0.0,
        float("nan"), float("inf"), 1j, "", "t", "x", "0", "i0", "serial", "a\nb", "a" * 3000, "\u202e", "import os",
        "1" * 5000, "(" * 400, "i//0", "n" + "+n" * 600, "float32", "threadIdx.x", "shared", b"x", bytearray(b"x"), [],
        (), {}, set[Any](), frozenset({1}), object(), len, int, lambda: 0, deep, loop, [None], [0], [1], [0, 1], (1, 0),
        [0, 0], [-1], [10**5000], [2**62], (4, 6), (6, 4), (24,), (2, 2, 6), [1.5], ["a"], {"a": None}, {"i": 64}, {"i":
        (0, None)}, {"i": range(0, 10**18)}, {"i": (5, 1)}, {0: 1}, {1: 0}, {0: 10**5000}, {None: None}, {"i":
        float("nan")}, range(3), range(0, 10**18), iter([1, 2]), (k for k in (0, 1)), zip([0], [1]), map(int, "01"),
        slice(None), slice(0, 2), slice(None, None, 0), slice(None, None, -1), slice(10**5000), slice("a"), ...,
        (slice(None), 0), (None, ...), (..., ...), np.arange(3), np.float32(1), np.int64(1), np.bool_(True),
        np.zeros((4, 6)), np.array("a"), np.array(2), _Odd(), _Endless(), types.SimpleNamespace(), Exception("x"),
        inspect, c.t, c.x, c.u, c.i, c.c, c.foreign, [c.t], [c.t, c.x], [c.t, c.foreign], (c.i1,), c.f,
        c.foreign.fusion, c.e, c.foreign.definition, c.t.logical[0], c.u.logical[1], list(c.u.loop),
        c.foreign.logical[0], [c.foreign.logical[0]], c.a.address, c.a.coordinates, c.m, c.a, c.use, (c.e, c.use),
        c.m.exact.groups[0], c.m.exact, c.m.index, Path("no") / "such", Path("."), "\x00", "\ud800",
    ]  # fmt: skip


def objects(c: Case) -> dict[str, Callable[[], Any]]:
    """One object of each public class that a user gets hold of, made when asked for."""
    return {
        "Fusion": lambda: c.f, "Tensor": lambda: c.t, "IdModel": lambda: c.m, "DomainGraph": lambda: c.m.exact,
        "IndexGraph": lambda: c.m.index, "Access": lambda: c.a, "Expr": lambda: c.a.address,
        "TensorExpr": lambda: c.e, "IterDomain": lambda: c.t.logical[0], "IndexMap": lambda: c.m.index_map(c.e),
        "Loop": lambda: c.a.loops[0], "VectorWidth": lambda: c.a.explain_vector_width(0),
        "Explanation": lambda: c.m.exact.explain(c.t.logical[0], c.u.logical[0]),
        "Predicate": lambda: c.a.explain_predicate(),
        "Proof": lambda: ig.prove_equal("i + 1 - 1", "i", {"i": 4}),
        "CounterExample": lambda: ig.prove_equal("i + 1", "i", {"i": 4}),
        "Program": lambda: ig.emit(c.f, target="python"), "Compiled": lambda: ig.compile(c.f, "numpy"),
        "Kernel": lambda: ig.emit(c.f, target="python").kernels[0], "Cost": lambda: ig.cost(ig.emit(c.f, "python")),
        "IndexReport": lambda: ig.report(c.f), "Plan": lambda: ig.fuse.plan(c.f),
        "Metrics": lambda: metrics(c.f, target="python", auto=False),
        "KernelConfig": lambda: ig.schedule.KernelConfig(block=64), "Decisions": lambda: ig.layout.infer(c.f),
        "Device": lambda: ig.cost.devices["cpu"], "ValueReport": lambda: ig.validate(c.f, target="python"),
        "AlignedGraph": lambda: c.m.aligned, "ExtentsGraph": lambda: c.m.extents, "Limits": lambda: ig.Limits(),
        "Explorer": lambda: ig.viz.explore(c.f), **_beside(),
    }  # fmt: skip


@cache
def _beside() -> Mapping[str, Callable[[], Any]]:
    """Objects of fusions that no call changes, made once."""
    ring, tile, sums, rows = map(ig.Fusion, ("ring", "tile", "sums", "rows"))
    x = ring.input("x", shape=(8,))
    ring.output(x + ig.cat([x[4:], x[:4]], dim=0))
    copied = ig.copy(tile.input("x", shape=(8, 32))).set_memory("shared")
    use = tile.output(copied * 2.0).definition
    for t in tile.tensors[1:]:
        t.parallelize(1, "threadIdx.x")
    y = sums.input("y", shape=(8, 4))
    sums.output(ig.sum(y, 1))
    sums.output(ig.sum(y, 0))
    rows.output(ig.index_select(rows.input("z", shape=(8, 4)) * 2.0, 0, rows.input("i", shape=(3,), dtype="int64")))
    assert use is not None
    found = {
        "Cycle": ig.IdModel(ring).exact.cycles()[0], "Obstacles": ig.fuse.obstacles(sums),
        "BankConflicts": ig.IdModel(tile).access(use, copied).bank_conflicts(), "GatherWays": ig.fuse.gathers(rows),
    }  # fmt: skip
    return {name: partial(_same, held) for name, held in found.items()}


def _same(held: object) -> object:
    return held


_CLASSES: dict[str, type] = {}


def surface(c: Case) -> Iterator[tuple[str, Callable[[], Callable[..., Any]]]]:
    """Every public callable by name, got when asked for: of the package, of its rooms, methods of each object bound."""
    seen: set[int] = set()
    rooms = [(room, getattr(ig, room), getattr(ig, room).__all__) for room in ROOMS]
    modules = [("ig", ig, [*ig.__all__, *ig.BUILTIN_NAMES]), *rooms]
    for room, module, names in modules:
        for name in names:
            held = getattr(module, name)
            if not callable(held) or id(held) in seen or name in INSIDE.get(room, ()) or name in ELSEWHERE:
                continue
            if isinstance(held, type) and name not in BUILT_BY_USERS:
                continue
            seen.add(id(held))
            yield f"{room}.{name}", partial(getattr, module, name)
    for kind, make in objects(c).items():
        if kind not in _CLASSES:
            _CLASSES[kind] = type(make())
        for name in dir(_CLASSES[kind]):
            member = inspect.getattr_static(_CLASSES[kind], name)
            wanted = not name.startswith("_") or name in DUNDERS
            called = inspect.isfunction(member) or isinstance(member, (staticmethod, classmethod))
            if wanted and name not in INSIDE.get(kind, ()) and name not in OF_SEQUENCES.get(kind, ()) and called:
                yield f"{kind}.{name}", partial(_method, make, name)


def _method(make: Callable[[], Any], name: str) -> Callable[..., Any]:
    return getattr(make(), name)


@dataclass(slots=True)
class Findings:
    """The record of a run: calls, and every broken promise by its kind, with the first call that broke it."""

    calls: int = 0
    failed: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    first: dict[str, str] = field(default_factory=dict[str, str])

    def note(self, kind: str, call: str) -> None:
        """Count one broken promise."""
        self.kinds[kind] += 1
        self.first.setdefault(kind, call)

    def __str__(self) -> str:
        rows = [f"{n:5} {kind}\n      {self.first[kind]}" for kind, n in self.kinds.most_common()]
        return "\n".join([f"{self.calls} calls, {self.failed} of them failed, {len(self.kinds)} kinds broken", *rows])


def _parameters(f: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return []


def _arguments(r: random.Random, c: Case, name: str, f: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by name: mostly one wrong among right ones, at times all wrong, too many or too few."""
    parameters, pool = _parameters(f), hostile(c)
    short = name.rpartition(".")[2]
    wild = r.random() < 0.25
    args: list[Any] = []
    named: dict[str, Any] = {}
    at = r.randrange(len(parameters)) if parameters else 0
    for k, p in enumerate(parameters):
        has_default = p.default is not p.empty or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        if has_default and k != at and r.random() < (0.5 if wild else 0.85):
            continue
        right = RIGHT.get(f"{name}.{p.name}") or RIGHT.get(f"{short}.{p.name}") or RIGHT.get(p.name)
        value = r.choice(pool) if k == at or wild or right is None else right(c)
        if p.kind == p.VAR_KEYWORD:
            named["title"] = value
        elif p.kind == p.VAR_POSITIONAL:
            args += [value, *(r.choice(pool) for _ in range(r.randrange(2)))]
        elif p.kind == p.KEYWORD_ONLY or (not args and r.random() < 0.5) or named:
            named[p.name] = value
        else:
            args.append(value)
    return args, named


def _shown(value: object, most: int = 50) -> str:
    try:
        text = str(value) if isinstance(value, BaseException) else repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
    return text if len(text) < most else text[: most - 10] + "..."


LOST = (
    "__del__",
    "gc_callback",
    "remove",
)  # callbacks of the collector and of weak references: no caller sees what they raise


@contextlib.contextmanager
def limit(seconds: float, timer: int = signal.ITIMER_REAL) -> Generator[None, None, None]:
    """Raises `TooLong` after so many seconds; with ``signal.ITIMER_PROF`` they are of this process's processor time."""
    number = signal.SIGALRM if timer == signal.ITIMER_REAL else signal.SIGPROF

    def stop(_number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_name in LOST:
                signal.setitimer(timer, 1e-3)  # long enough for this function to end
                return
            frame = frame.f_back
        raise TooLong

    before = signal.signal(number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)


def _where(error: BaseException) -> str:
    frame, place = error.__traceback__, ""
    while frame is not None:
        if "idgraph/" in (file := frame.tb_frame.f_code.co_filename) and "/tests/" not in file:
            place = f"{file.rpartition('idgraph/')[2]}:{frame.tb_frame.f_code.co_name}"
        frame = frame.tb_next
    return place


def _text(c: Case) -> str:
    fusions = (c.f, c.foreign.fusion)
    return "\n".join(
        str(f) + "\n" + ", ".join(f"{t.name} {t.inline_position} {t.memory}" for t in f.tensors) for f in fusions
    )


def _one(r: random.Random, c: Case, name: str, f: Callable[..., Any], found: Findings) -> bool:
    """One call; True where the case must be made anew."""
    args, named = _arguments(r, c, name, f)
    call = f"{name}({', '.join([*map(_shown, args), *(f'{k}={_shown(v)}' for k, v in named.items())])})"
    before = _text(c)
    found.calls += 1
    try:
        with (
            limit(SECONDS, signal.ITIMER_PROF),
            limit(WAITED),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("error")
            result = f(*args, **named)
            if isinstance(result, Iterator):
                next(cast("Iterator[Any]", result), None)
            elif not (
                isinstance(result, (list, tuple, dict))
                or name.startswith("testing.")
                or any(result is given for given in (*args, *named.values()))
            ):
                repr(result)
        return True
    except TooLong:
        found.note(f"over {SECONDS} s: {name}", call)
        return True
    except ig.IdGraphError as error:
        try:
            str(error)
        except Exception as worse:
            found.note(f"message: {type(worse).__name__} {_where(worse)}", call)
    except PLAIN_ERRORS:
        pass
    except TypeError as error:
        if not (_where(error) == "" or "argument" in str(error)):  # Python's own word for too many or unknown ones
            found.note(f"TypeError: {_shown(error, 60)} [{_where(error)}]", call)
    except BaseException as error:
        found.note(f"{type(error).__name__}: {_shown(error, 60)} [{_where(error)}]", call)
    found.failed += 1
    try:
        if _text(c) != before:
            found.note(f"changed by a failed call: {name}", call)
            return True
    except Exception as error:
        found.note(f"print fails afterwards: {name}: {type(error).__name__}", call)
        return True
    return False


def fuzz(calls: int, seed: int, only: str = "") -> Findings:
    """Call what ``only`` is part of the name of, at random."""
    r, found = random.Random(seed), Findings()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        c = Case()
        table = [(n, f) for n, f in surface(c) if only in n]
        by_name = dict(table)
        for _ in range(calls):
            name = r.choice(table)[0]
            if _one(r, c, name, by_name[name](), found):
                c = Case()
                by_name = dict(surface(c))
    return found


def _changing(c: Case) -> list[Callable[[], Any]]:
    """Calls with right arguments that change a fusion: operations of several primitives, steps, schedulers."""
    s = ig.schedule
    target: Any = ig.select(c.i, 1, 0)
    return [
        lambda: ig.softmax(c.t, 1), lambda: ig.cross_entropy(c.t, target), lambda: c.t[1:, ::2],
        lambda: ig.stack([c.t, c.x]), lambda: ig.roll(c.t, (1, 2), (0, 1)), lambda: ig.index_put(c.t, [c.i1], 1.0),
        lambda: c.u.split(0, 2), lambda: c.u.merge(0), lambda: c.u.parallelize(0, "threadIdx.x"),
        lambda: c.u.set_allocation(c.u.logical[::-1]), lambda: c.t.inline(1), lambda: s.like(c.f, c.u),
        lambda: s.inline_most(c.f), lambda: s.auto(c.f), lambda: s.recompute(c.t, c.e), lambda: c.f.output(c.t),
        lambda: c.f.input("new", shape=(3, 4)), lambda: ig.cat([c.t, c.x, c.u], dim=1),
    ]  # fmt: skip


def interrupt(calls: int, seed: int) -> Findings:
    """Calls that are right, interrupted at a random moment: they end, or leave the fusion as it was."""
    r, found = random.Random(seed), Findings()
    for _ in range(calls):
        c = Case()
        table = _changing(c)
        k = r.randrange(len(table))
        before = _text(c)
        found.calls += 1
        whole = Case()
        done = _changing(whole)[k]
        began = time.perf_counter()
        done()
        took = time.perf_counter() - began  # how fast a machine is must not decide where the interrupt comes
        try:
            with limit(max(1e-5, took * r.random())):
                table[k]()
        except TooLong:
            found.failed += 1  # the interrupt may come when all is done
            if _text(c) not in (before, _text(whole)):
                found.note(f"changed by an interrupted call: {k}", before)
    return found


def main() -> None:
    """``python -m tests.bad_input.fuzz CALLS SEED [PART OF A NAME]``"""
    calls, seed, *only = sys.argv[1:]
    print(fuzz(int(calls), int(seed), *only))


if __name__ == "__main__":
    main()
