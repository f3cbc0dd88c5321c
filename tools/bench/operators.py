"""PyTorch's own operator database through the import, on several targets, beside eager torch.

    python -m tools.bench.operators [--samples 2] [--targets python,numpy,cpu] [--seconds 600] [--out FILE]

Writes ``results/operators.json``: for each operator and type the samples that were equal, that have an opaque
operation, that were refused with one error, and those that differ, with the first of each as text. Every sample is one
of torch's own (`op.sample_inputs`).
``results/operators_all.json`` holds the same of all samples, of fewer operators so far.

A sample is equal where `torch.testing.assert_close` says so. Where it does not, the same call in float64 is the judge
(`no_farther`): results are as good as eager's where they are at most twice as far from it at the worst element, and
where eager's are not finite and float64's are, they must be close to float64's. A row tells how many samples were
equal by float64 alone.

Rows of several runs are joined: each tells its torch, commit, samples and limit; ``--told torch=2.11.0`` says what
older rows do not tell. Of two rows of one operator, type and targets the later one in the list counts:

    python -m tools.bench.operators --join a.rows b.rows --told torch=2.11.0 commit=dab289e --out FILE
"""

# torch gives its private module no types:
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import argparse
import json
import platform
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import rich.progress

import idgraph as ig

torch: Any = import_module("torch")  # its types are not known to the checker

Tensor = Any  # torch.Tensor
RESULTS = Path(__file__).parent / "results" / "operators.json"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int64": torch.int64, "bool": torch.bool}
FACTS = ("machine", "python", "torch", "commit", "samples", "case seconds")  # of the run that a row is from
UNTOLD, BY_FLOAT64 = "not told", "equal by float64"
NARROW = (torch.float32, torch.float16, torch.bfloat16)
# Not functions of tensors alone: random numbers, factories of uninitialised memory, and tests of the harness itself.
NO_FUNCTIONS = ("rand", "empty", "normal", "bernoulli", "multinomial", "dropout", "uniform", "exponential", "geometric",
                "cauchy", "log_normal", "new_empty", "jiterator", "fractional_max_pool", "rrelu")  # fmt: skip


def function_of(op: Callable[..., Any], sample: Any) -> tuple[Callable[..., Any], tuple[Tensor, ...]] | None:
    """The call of a sample as a function of its tensors only, and these; None where it has none."""
    flat: list[Tensor] = []

    def hole(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            flat.append(value)
            return len(flat) - 1, "hole"
        if isinstance(value, (list, tuple)):
            return [hole(v) for v in value]
        return value

    args, kwargs = [hole(a) for a in (sample.input, *sample.args)], {k: hole(v) for k, v in sample.kwargs.items()}
    if not flat or any(t.layout is not torch.strided or t.is_complex() for t in flat) or kwargs.get("dropout_p"):
        return None

    def filled(value: Any, tensors: Sequence[Tensor]) -> Any:
        if isinstance(value, tuple) and len(value) == 2 and value[1] == "hole":
            return tensors[value[0]]
        return [filled(v, tensors) for v in value] if isinstance(value, list) else value

    def call(*tensors: Tensor) -> Any:
        exact = any(t.dtype is torch.float64 for t in tensors)  # in float64 no argument asks for less
        given = {k: torch.float64 if exact and v in NARROW else filled(v, tensors) for k, v in kwargs.items()}
        return op(*(filled(a, tensors) for a in args), **given)

    return call, tuple(flat)


def no_farther(call: Callable[..., Any], tensors: Sequence[Tensor], found: Any, wanted: Any) -> bool:
    """True where results are at most twice as far from float64 as eager's, which rounds between steps."""
    whole = not any(t.is_floating_point() for t in tensors)  # whole numbers of which a float is made
    try:
        exact = call(*(t.double() if whole or t.is_floating_point() else t.clone() for t in tensors))
    except Exception:  # an index is not a float
        return False
    rows = [x if isinstance(x, (list, tuple)) else (x,) for x in (found, wanted, exact)]
    if not any(w.is_floating_point() for w in rows[1]):
        return False
    return all(_as_good(f, w, e) if w.is_floating_point() else torch.equal(f, w) for f, w, e in zip(*rows))


def _as_good(found: Tensor, wanted: Tensor, exact: Tensor) -> bool:
    """Of one result: eager's ``wanted`` where it is finite, else the float64 result rounded to its type."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype or exact.shape != wanted.shape:
        return False
    rounded = exact.to(wanted.dtype)
    lost = ~wanted.isfinite() & rounded.isfinite()
    try:
        torch.testing.assert_close(found[lost], rounded[lost])
        rest = ~lost & exact.isfinite() & wanted.isfinite()
        torch.testing.assert_close(found[~lost & ~rest], wanted[~lost & ~rest], equal_nan=True)
    except AssertionError:
        return False
    near, far = ((x.double() - exact.double())[rest].abs() for x in (found, wanted))
    return near.numel() == 0 or float(near.max()) <= 2 * float(far.max())


class Slow(BaseException):  # no wrapper of errors takes it for one
    """A sample took longer than its limit."""


def stop(_number: int, _frame: object) -> None:
    """Ends what takes too long: the handler of SIGALRM."""
    raise Slow


def tried(
    call: Callable[..., Any], tensors: tuple[Tensor, ...], targets: Sequence[str], seconds: float = 60.0
) -> tuple[str, str]:
    """("equal" | "opaque" | "refused" | "differs" | "fails" | "slow" | "torch refuses", text)."""
    try:
        wanted = call(*(t.clone() for t in tensors))
    except Exception as error:
        return "torch refuses", str(error)[:200]
    if not all(isinstance(x, torch.Tensor) for x in (wanted if isinstance(wanted, (list, tuple)) else (wanted,))):
        return "no tensors", "its results are not tensors alone"
    signal.setitimer(signal.ITIMER_REAL, seconds)
    target = ""
    try:
        imported = ig.from_torch(call, tensors)
        status, told = "opaque" if imported.coverage.opaque else "equal", ""
        for target in targets:
            found = imported.run(*(t.clone() for t in tensors), target=target)
            try:
                torch.testing.assert_close(found, wanted, equal_nan=True, check_stride=False)
            except AssertionError:
                if not no_farther(call, tensors, found, wanted):
                    raise
                told = BY_FLOAT64
    except AssertionError as error:
        return "differs", f"{target}: {error}"[:400]
    except ig.IdGraphError as error:
        return "refused", str(error)[:300]
    except Slow:
        return "slow", f"over {seconds:g} s"
    except Exception as error:  # an error that is not the library's own: a fault of it, and the next sample goes on
        return "fails", f"{target}: {type(error).__name__}: {error}"[:400]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return status, told


def facts(given: argparse.Namespace) -> dict[str, str]:
    """What a row tells of the run that it is from."""
    commit = (
        given.commit
        or subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=10"], capture_output=True, text=True, check=False
        ).stdout.strip()
    )
    return {
        "machine": platform.machine(), "python": platform.python_version(), "torch": torch.__version__,
        "commit": commit or UNTOLD, "samples": str(given.samples or "all"),
        "case seconds": f"{given.case_seconds:g}",
    }  # fmt: skip


def joined(paths: Sequence[Path], told: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of several runs, those of one operator, type and targets once: the last."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for path in paths:
        for row in map(json.loads, path.read_text().splitlines()):
            key = row["operator"], row["dtype"], "+".join(row["targets"])
            found.pop(key, None)
            found[key] = {**row, **{k: row.get(k, told.get(k, UNTOLD)) for k in FACTS}}
    return list(found.values())


def options() -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2, help="of each operator and type; 0: all")
    parser.add_argument("--targets", default="python,numpy,cpu")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--only", default="", help="part of an operator's name")
    parser.add_argument("--every", type=int, default=1, help="each n-th operator only")
    parser.add_argument("--first", type=int, default=0, help="with --every: from this one on")
    parser.add_argument("--resume", action="store_true", help="go on where a run with the same --out was killed")
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="only join the rows that these runs wrote")
    parser.add_argument("--told", nargs="*", default=[], metavar="FACT=VALUE", help="of joined rows that do not tell")
    parser.add_argument("--commit", default="", help="what rows tell; where absent, git is asked")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop beginning new operators after this")
    parser.add_argument(
        "--case-seconds", type=float, default=60.0, help="of one sample on all targets; then it is slow"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def row_of(op: Any, name: str, given: argparse.Namespace) -> dict[str, Any]:
    """What the samples of one operator and type gave."""
    targets, counts, first, by_float64 = given.targets.split(","), Counter[str](), dict[str, str](), 0
    torch.manual_seed(0)
    for k, sample in enumerate(op.sample_inputs("cpu", DTYPES[name])):
        if given.samples and k >= given.samples:
            break
        made = function_of(op, sample)
        status, text = tried(*made, targets, given.case_seconds) if made is not None else ("no tensors", "")
        counts[status] += 1
        by_float64 += text == BY_FLOAT64
        first.setdefault(status, text)
    told = {s: t for s, t in first.items() if t and t != BY_FLOAT64}
    row = {"operator": op.full_name, "dtype": name, "targets": targets, "counts": dict(counts), "first": told}
    return row | ({BY_FLOAT64: by_float64} if by_float64 else {})


def main() -> int:
    """0 where nothing differs and nothing fails."""
    given = options()
    partial = given.out.with_suffix(".rows")
    if given.join:
        found = joined(given.join, dict(fact.split("=", 1) for fact in given.told))
        partial.write_text("".join(json.dumps(row) + "\n" for row in found))  # to be joined with more
        return written(given.out, found)
    # Imported here: it builds six hundred descriptions, and `--help` need not wait for them.
    op_db: list[Any] = import_module("torch.testing._internal.common_methods_invocations").op_db
    run = facts(given)
    signal.signal(signal.SIGALRM, stop)
    began, rows = time.monotonic(), list[dict[str, Any]]()
    chosen = [o for o in op_db if given.only in o.name and not any(w in o.name for w in NO_FUNCTIONS)][
        given.first :: given.every
    ]
    warnings.simplefilter("ignore")
    if given.resume and partial.exists():
        rows += [json.loads(x) for x in partial.read_text().splitlines()]
    else:
        partial.unlink(missing_ok=True)
    known = {(row["operator"], row["dtype"]) for row in rows}
    for op in rich.progress.track(chosen, "operators", disable=not sys.stdout.isatty()):
        for name in given.dtypes.split(","):
            if (
                (op.full_name, name) in known
                or DTYPES[name] not in op.supported_dtypes("cpu")
                or time.monotonic() - began > given.seconds
            ):
                continue
            rows.append(row_of(op, name, given) | run)
            with partial.open("a") as file:  # what a killed run has found
                file.write(json.dumps(rows[-1]) + "\n")
    return written(given.out, rows)


def written(out: Path, rows: Sequence[dict[str, Any]]) -> int:
    """Write the table of these rows; 1 where something differs or fails."""
    by_type: dict[str, Counter[str]] = {}
    for row in rows:
        by_type.setdefault(f"{'+'.join(row['targets'])} {row['dtype']}", Counter()).update(row["counts"])
    head = {
        **{fact: _only(Counter(row.get(fact, UNTOLD) for row in rows)) for fact in FACTS},
        "rows of operator and type": len(rows), "operators": len({r["operator"] for r in rows}),
        BY_FLOAT64: sum(row.get(BY_FLOAT64, 0) for row in rows),
        "total": dict(sum(by_type.values(), Counter[str]())), "by targets and type": by_type,
    }  # fmt: skip
    reasons = {
        status: [
            f"{r['operator']} {r['dtype']}: {r['first'].get(status, '')[:200]}" for r in rows if status in r["counts"]
        ]
        for status in ("differs", "fails", "refused", "slow")
    }
    same = [fact for fact in FACTS if isinstance(head[fact], str)]  # the head tells it for all rows
    told = [{k: v for k, v in r.items() if k != "first" and k not in same} for r in rows]
    lines = ",\n  ".join(json.dumps(r) for r in told)
    out.write_text(json.dumps({**head, **reasons}, indent=1)[:-2] + f',\n "rows": [\n  {lines}\n ]\n}}\n')
    wrong = [*reasons["differs"], *reasons["fails"]]
    print(json.dumps(head), *wrong, sep="\n")
    return 1 if wrong else 0


def _only(counts: Counter[str]) -> str | dict[str, int]:
    """The one value of all rows, or how many rows have which."""
    return next(iter(counts)) if len(counts) == 1 else dict(counts)


if __name__ == "__main__":
    sys.exit(main())
