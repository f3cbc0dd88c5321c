"""PyTorch's own operator database through the import, on several targets, beside eager torch.

    python -m tools.bench.operators [--samples 2] [--targets python,numpy,cpu] [--seconds 600] [--out FILE]

Writes ``results/operators.json``: for each operator and type the samples that were equal, that have an opaque
operation, that were refused with one error, and those that differ, with the first of each as text. Every sample is one
of torch's own (`op.sample_inputs`).
``results/operators_all.json`` holds the same of all samples, of fewer operators so far.

A sample is equal where `torch.testing.assert_close` says so. Where it does not, the same call in float64 is the judge
(`no_farther`): results are as good as eager's where they are at most twice as far from it at the worst element, and
where eager's are not finite and float64's are, they must be close to float64's. A row says how many samples were
equal only by float64.

Rows of several runs are joined: each has its torch, commit, samples and limit; ``--recorded torch=2.11.0`` says what
older rows lack. Of two rows of one operator, type and targets the later one in the list counts:

    python -m tools.bench.operators --join a.rows b.rows --recorded torch=2.11.0 commit=dab289e --out FILE

Samples of one operator and type that differ in the values of their tensors only run one captured program; where its
results are not eager's, a sample is captured again by itself.

Any number of processes share the work by ``--claims FOLDER`` (empty at first): each takes the next `PART` samples that
nobody has taken, spread evenly over all of an operator and type. Every row has its first part before any has its
second, so that a run that ends early has judged some samples of each; the joined table tells how many of how many.
``--known`` names rows that are not made again, unless they have one of the statuses of ``--again``:

    for k in $(seq 24); do python -m tools.bench.operators --samples 0 --known *.rows --again slow,differs,fails \\
        --claims /tmp/claims --out /tmp/part$k.json & done

``--backend`` goes through ``torch.compile(backend="idgraph")``, results and gradients beside eager's, the first sample
of float32 of each operator, and writes ``results/operators_backend.json``: "equal", with "opaque" where something in it
is left to torch; "eager" where a whole graph is; "no graph" where torch captures none; "differs", "error", "slow".

    python -m tools.bench.operators --backend [--every 16 --first 3] [--seconds 600] [--out FILE]
"""

# torch gives its private module no types:
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import rich.progress

import idgraph as ig
from idgraph.runtime.interrupts import COMPILING
from tools.judges.torch_operators import Case, cases, described, differences, function_of, likeness, no_farther

torch: Any = import_module("torch")  # its types are not known to the checker

Tensor = Any  # torch.Tensor
Row = dict[str, Any]  # what one operator and type gave, or a part of its samples
Key = tuple[str, str, str]  # operator, type, targets
Part = tuple[str, str, int, int]  # operator, type, part k of n: the samples k, k + n, k + 2 n and so on
Programs = dict[Hashable, Any]  # captured programs by what calls have in common
RESULTS = Path(__file__).parent / "results" / "operators.json"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int64": torch.int64, "bool": torch.bool}
FACTS = ("machine", "python", "torch", "commit", "samples", "case seconds")  # of the run that a row is from
PART = 16  # samples of one operator and type that a process takes at a time, at most
ROUNDS = 16  # the parts of a row that are taken in a round are as many as in all rounds before
PROGRAMS = 256  # captured programs that are kept at a time
UNRECORDED, BY_FLOAT64 = "not recorded", "equal by float64"


class Slow(BaseException):  # no wrapper of errors takes it for one
    """A sample took longer than its limit."""


def stop(_number: int, _frame: object) -> None:
    """Ends what takes too long: the handler of both clocks."""
    raise Slow


def limit(seconds: float) -> None:
    """Stop this process's work after so much processor time, or ten times as long where it only waits; 0: no limit.

    Again and again until there is no limit: what a destructor of Python raises is lost.
    """
    for clock, after in ((signal.ITIMER_PROF, seconds), (signal.ITIMER_REAL, 10 * seconds)):
        signal.setitimer(clock, after, min(after, 2.0))


def tried(
    call: Callable[..., Any],
    tensors: tuple[Tensor, ...],
    targets: Sequence[str],
    seconds: float = 60.0,
    like: Hashable = None,
    programs: Programs | None = None,
) -> tuple[str, str]:
    """("equal" | "opaque" | "refused" | "differs" | "fails" | "slow" | "torch refuses", text).

    ``programs``: those of earlier calls; one that was ``like`` this runs instead of a capture of its own.
    """
    known = None if programs is None else programs.get(like)
    try:
        wanted = call(*(t.clone() for t in tensors))
    except Exception as error:
        return "torch refuses", str(error)[:200]
    if not all(isinstance(x, torch.Tensor) for x in (wanted if isinstance(wanted, (list, tuple)) else (wanted,))):
        return "no tensors", "some of its results are not tensors"
    limit(seconds)
    target = ""
    try:
        imported = known or ig.from_torch(call, tensors)
        status, told = "opaque" if imported.coverage.opaque else "equal", ""
        for target in targets:
            found = imported.run(*(t.clone() for t in tensors), target=target)
            try:
                torch.testing.assert_close(found, wanted, equal_nan=True, check_stride=False)
            except AssertionError:
                if not no_farther(call, tensors, found, wanted):
                    raise
                told = BY_FLOAT64
        if programs is not None:
            programs[like] = imported
            if len(programs) > PROGRAMS:
                del programs[next(iter(programs))]
    except Slow:
        return "slow", f"over {seconds:g} s of processor time"
    except Exception as error:
        if known is not None:  # values may decide what is captured
            return tried(call, tensors, targets, seconds)
        match error:
            case AssertionError():
                return "differs", f"{target}: {error}"[:400]
            case ig.IdGraphError():
                return "refused", str(error)[:300]
            case _:  # an error that is not the library's own: a fault of it, and the next sample goes on
                return "fails", f"{target}: {type(error).__name__}: {error}"[:400]
    finally:
        limit(0)
        for thread in threading.enumerate():
            if thread.name == COMPILING:  # others, of torch's pools for one, may never end
                thread.join()  # a kernel that is still compiled is not the next sample's time
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
        "machine": f"{os.cpu_count()} cores, {platform.machine()}", "python": platform.python_version(),
        "torch": torch.__version__, "commit": commit or UNRECORDED, "samples": str(given.samples or "all"),
        "case seconds": f"{given.case_seconds:g}",
    }  # fmt: skip


def joined(paths: Sequence[Path], told: Mapping[str, str]) -> tuple[list[Row], list[Row]]:
    """Rows of several runs, those of one operator, type and targets once: the last; and parts of unfinished rows, which
    `begun` makes rows of."""
    found, parts = dict[Key, Row](), dict[tuple[Key, int, str], dict[int, Row]]()
    for path in paths:
        for row in map(json.loads, path.read_text().splitlines()):
            row |= {k: row.get(k, told.get(k, UNRECORDED)) for k in FACTS}
            key = row["operator"], row["dtype"], "+".join(row["targets"])
            if "part" in row:
                group = key, row["of"], row["torch"]
                parts.setdefault(group, {})[row["part"][0]] = row
                if len(parts[group]) < row["part"][1]:
                    continue
                row = merged(parts.pop(group))
            found.pop(key, None)
            found[key] = row
    return list(found.values()), [row for group in parts.values() for row in group.values()]


def merged(parts: Mapping[int, Row]) -> Row:
    """The row of the samples of all these parts."""
    chain = [parts[k] for k in sorted(parts)]
    row = {k: v for k, v in chain[0].items() if k not in ("part", "of", BY_FLOAT64)}
    row["counts"] = dict(sum((Counter(r["counts"]) for r in chain), Counter[str]()))
    row["first"] = {status: text for r in reversed(chain) for status, text in r["first"].items()}
    row |= {fact: " and ".join(sorted({r[fact] for r in chain})) for fact in FACTS}
    by_float64 = sum(r.get(BY_FLOAT64, 0) for r in chain)
    return row | ({BY_FLOAT64: by_float64} if by_float64 else {})


def begun(rows: Sequence[Row], parts: Sequence[Row]) -> list[Row]:
    """Rows of the parts of unfinished ones, of those that ``rows`` does not have: they tell how many of how many."""
    groups = dict[tuple[str, str, str, int], dict[int, Row]]()
    done = {(r["operator"], r["dtype"], "+".join(r["targets"])) for r in rows}
    for row in parts:
        key = row["operator"], row["dtype"], "+".join(row["targets"])
        if key not in done:
            groups.setdefault((*key, row["of"]), {})[row["part"][0]] = row
    made = [(merged(group), of) for (*_, of), group in groups.items()]
    return [row | {"samples": f"{sum(row['counts'].values())} of {of}, spread evenly"} for row, of in made]


def options() -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2, help="of each operator and type; 0: all")
    parser.add_argument("--targets", default="python,numpy,cpu")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--only", default="", help="part of an operator's full name")
    parser.add_argument("--every", type=int, default=1, help="each n-th operator only")
    parser.add_argument("--first", type=int, default=0, help="with --every: from this one on")
    parser.add_argument("--resume", action="store_true", help="go on where a run with the same --out was killed")
    parser.add_argument("--known", type=Path, nargs="*", default=[], help="rows of other runs, not to be made again")
    parser.add_argument("--again", default="", help="statuses whose rows are made again all the same: slow,differs")
    parser.add_argument("--claims", type=Path, help="a folder where processes that share the work take their parts")
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="only join the rows that these runs wrote")
    parser.add_argument("--recorded", nargs="*", default=[], metavar="FACT=VALUE", help="of joined rows that lack them")
    parser.add_argument("--commit", default="", help="the commit of the rows; where absent, git is asked")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop beginning new operators after this")
    parser.add_argument(
        "--case-seconds", type=float, default=60.0, help="processor time of one sample on all targets; then it is slow"
    )
    parser.add_argument("--backend", action="store_true", help="through torch.compile, results and gradients")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def row_of(op: Any, name: str, samples: Sequence[Any], given: argparse.Namespace, programs: Programs) -> Row:
    """What samples of one operator and type gave."""
    targets, counts, first, by_float64 = given.targets.split(","), Counter[str](), dict[str, str](), 0
    for sample in samples:
        made = function_of(op, sample)
        status, text = "no tensors", ""
        if made is not None:
            like = likeness([sample.input, sample.args, sample.kwargs])
            status, text = tried(*made, targets, given.case_seconds, like, programs)
        counts[status] += 1
        by_float64 += text == BY_FLOAT64
        first.setdefault(status, text)
    told = {s: t for s, t in first.items() if t and t != BY_FLOAT64}
    row = {"operator": op.full_name, "dtype": name, "targets": targets, "counts": dict(counts), "first": told}
    return row | ({BY_FLOAT64: by_float64} if by_float64 else {})


def rows_of(op: Any, name: str, given: argparse.Namespace, known: Collection[Part], turn: int) -> Iterator[Row]:
    """The row of one operator and type; of processes that share the work, those parts that this one could take."""
    torch.manual_seed(0)  # every process then has the same samples
    samples, programs = list(islice(op.sample_inputs("cpu", DTYPES[name]), given.samples or None)), Programs()
    if given.claims is None:
        yield row_of(op, name, samples, given, programs)
        return
    count = max(1, -(-len(samples) // PART))
    for k in range(count)[1 << turn >> 1 : 1 << turn]:
        part = op.full_name, name, k, count
        try:
            if part in known:
                continue
            (given.claims / " ".join(map(str, part))).touch(exist_ok=False)
        except FileExistsError:
            continue
        row = row_of(op, name, samples[k::count], given, programs)
        yield row | ({} if count == 1 else {"part": part[2:], "of": len(samples)})


# behind torch.compile -------------------------------------------------------------------------------------------------


def judged_by_backend(case: Case, seconds: float) -> Row:
    """The outcome of one case."""
    logs: list[str] = []
    began = time.process_time()
    status, text = "equal", ""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            wrong = differences([case], logs.append)
        left = [str(w.message) for w in said if "left to eager mode" in str(w.message)]
        if wrong:
            status, text = "differs", wrong[0]
        elif not logs:
            status = "no graph"
        elif left:
            status, text = "eager", left[0]
        elif any("opaque: " in t for t in logs):
            status = "opaque"
    except Slow:
        status, text = "slow", f"over {seconds:g} s"
    except Exception as error:  # any failure is an entry of the table
        status, text = "error", f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {"operator": case.name, "status": status, "text": text[:300], "cpu_s": round(time.process_time() - began, 2)}


def backend_written(out: Path, rows: Sequence[Row]) -> int:
    """Write the table of these rows; 1 where something is wrong."""
    counts = Counter(r["status"] for r in rows)
    head = {
        "machine": platform.machine(), "python": platform.python_version(), "torch": torch.__version__,
        "operators": len(rows), "total": dict(counts),
    }  # fmt: skip
    lines = ",\n  ".join(json.dumps(r) for r in sorted(rows, key=lambda r: str(r["operator"])))
    out.write_text(json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n  {lines}\n ]\n}}\n')
    print(json.dumps(head), *(r for r in rows if r["status"] in ("differs", "error", "eager", "slow")), sep="\n")
    return 1 if counts["differs"] or counts["error"] else 0


def behind_compile(given: argparse.Namespace) -> int:
    """The table of ``--backend``."""
    out = RESULTS.with_name("operators_backend.json") if given.out == RESULTS else given.out
    if given.join:
        return backend_written(out, [json.loads(x) for p in given.join for x in p.read_text().splitlines()])
    signal.signal(signal.SIGALRM, stop)
    warnings.simplefilter("ignore")
    began, rows = time.monotonic(), list[Row]()
    with out.with_suffix(".rows").open("w") as file:
        for case in cases(given.first, given.every, given.only):
            if time.monotonic() - began > given.seconds:
                break
            rows.append(judged_by_backend(case, given.case_seconds))
            file.write(json.dumps(rows[-1]) + "\n")  # what a killed run has found
            file.flush()
    return backend_written(out, rows)


def main() -> int:
    """0 where nothing differs and nothing fails."""
    given = options()
    if given.backend:
        return behind_compile(given)
    partial = given.out.with_suffix(".rows")
    if given.join:
        found, rest = joined(given.join, dict(fact.split("=", 1) for fact in given.recorded))
        partial.write_text("".join(json.dumps(row) + "\n" for row in [*found, *rest]))  # to be joined with more
        return written(given.out, [*found, *begun(found, rest)])
    run = facts(given)
    signal.signal(signal.SIGALRM, stop)
    signal.signal(signal.SIGPROF, stop)
    began = time.monotonic()
    chosen = described(given.only)[given.first :: given.every]
    warnings.simplefilter("ignore")
    if given.claims is not None:
        given.claims.mkdir(parents=True, exist_ok=True)
    if not given.resume:
        partial.write_text("")
    partial.touch()
    rows, parts = joined([*given.known, partial], {})
    again = set(given.again.split(","))
    known = {(r["operator"], r["dtype"]) for r in rows if not again & set(r["counts"])}
    known_parts = {(r["operator"], r["dtype"], *r["part"]) for r in parts if not again & set(r["counts"])}
    gc.freeze()  # six hundred descriptions and torch itself are not looked through for garbage again and again
    turns = [(turn, op) for turn in range(ROUNDS if given.claims is not None else 1) for op in chosen]
    single = set[tuple[str, str]]()  # rows without a part in later rounds
    for turn, op in rich.progress.track(turns, "operators", disable=not sys.stdout.isatty()):
        for name in given.dtypes.split(","):
            if (op.full_name, name) in known or DTYPES[name] not in op.supported_dtypes("cpu"):
                continue
            if time.monotonic() - began > given.seconds:
                break
            if (op.full_name, name) in single:
                continue
            for row in rows_of(op, name, given, known_parts, turn):
                if "part" not in row:
                    single.add((op.full_name, name))
                with partial.open("a") as file:  # what a killed run has found
                    file.write(json.dumps(row | run) + "\n")
                if time.monotonic() - began > given.seconds:
                    break
    found, rest = joined([partial], {})
    return written(given.out, [*found, *begun(found, rest)])


def written(out: Path, rows: Sequence[dict[str, Any]]) -> int:
    """Write the table of these rows; 1 where something differs or fails."""
    by_type: dict[str, Counter[str]] = {}
    for row in rows:
        by_type.setdefault(f"{'+'.join(row['targets'])} {row['dtype']}", Counter()).update(row["counts"])
    head = {
        **{fact: _only(Counter(row.get(fact, UNRECORDED) for row in rows)) for fact in FACTS},
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
