"""PyTorch's own operator database through ``torch.compile(backend="idgraph")``: results and gradients beside eager's.

    python -m tools.bench.operators_backend [--every 16 --first 3] [--seconds 600] [--out FILE]

Writes a line of JSON for each operator: "equal", with "opaque" where something in it is left to torch; "eager" where a
whole graph is; "no graph" where torch captures none; "differs", "error", "slow". ``--join`` makes one table of several
runs, ``results/operators_backend.json``. Of each operator the first sample of float32 is taken.
"""

# torch gives its private modules no types:
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import argparse
import json
import platform
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tools.bench.operators import NO_FUNCTIONS, Slow, function_of, no_farther, stop

torch: Any = import_module("torch")  # its types are not known to the checker
backend: Any = import_module("idgraph.frontends.torch_compile")

Tensor = Any  # torch.Tensor
RESULTS = Path(__file__).parent / "results" / "operators_backend.json"


@dataclass(frozen=True, slots=True)
class Case:
    """A sample of an operator as a function of its tensors."""

    name: str
    call: Callable[..., Any]
    tensors: tuple[Tensor, ...]
    gradients: bool


def cases(first: int = 0, every: int = 1, only: str = "", names: Container[str] | None = None) -> Iterator[Case]:
    """A case of each operator that is a function of tensors, gives tensors, and that eager torch can do."""
    op_db: list[Any] = import_module("torch.testing._internal.common_methods_invocations").op_db
    chosen = [o for o in op_db if only in o.full_name and not any(w in o.name for w in NO_FUNCTIONS)]
    for op in chosen[first::every]:
        if names is not None and op.full_name not in names:
            continue
        if torch.float32 not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        sample = _first_sample(op)
        made = None if sample is None else function_of(op.op, sample)
        if made is None:
            continue
        call, tensors = made
        try:
            results = flat(call(*(t.clone() for t in tensors)))
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            continue
        if results and all(isinstance(r, torch.Tensor) for r in results):
            yield Case(op.full_name, call, tensors, op.supports_autograd)


def _first_sample(op: Any) -> Any:
    """The operator's first sample; None where it has none.

    For each sample torch reads the sources of the whole stack, to find a test case of its own that asks: here is none.
    """
    modules = ("common_utils", "opinfo.core")
    with ExitStack() as stack:
        for name in modules:
            stack.enter_context(patch(f"torch.testing._internal.{name}.extract_test_fn", lambda: None))
        return next(iter(op.sample_inputs("cpu", torch.float32)), None)


def flat(results: Any) -> list[Any]:
    """One result, or those of a tuple."""
    return list(results) if isinstance(results, (tuple, list)) else [results]


def together(group: Sequence[Case]) -> tuple[Callable[..., Any], list[Tensor]]:
    """The cases as one function, which gives all results, and all their tensors."""
    counts = [len(c.tensors) for c in group]
    calls = [c.call for c in group]

    def work(*given: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        at = 0
        for call, count in zip(calls, counts, strict=True):
            made = call(*given[at : at + count])
            found += list(made) if isinstance(made, (tuple, list)) else [made]
            at += count
        return found

    return work, [t for c in group for t in c.tensors]


def step(call: Callable[..., Any], tensors: Sequence[Tensor], wanted: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """Results, and the gradients of the tensors that want one."""
    given = [t.clone().requires_grad_(w and t.is_floating_point()) for t, w in zip(tensors, wanted, strict=True)]
    results = flat(call(*given))
    ends = [r for r in results if r.requires_grad and r.is_floating_point()]
    asked = [t for t in given if t.requires_grad]
    if not ends or not asked:
        return results, []
    seeds = [torch.linspace(-1, 1, r.numel(), dtype=r.dtype).reshape(r.shape) for r in ends]
    return results, list(torch.autograd.grad(ends, asked, seeds, allow_unused=True))


def differences(group: Sequence[Case], log: Callable[[str], object]) -> list[str]:
    """A line for each result or gradient that is not eager's."""
    torch._dynamo.reset()
    call, tensors = together(group)
    wants = [_differentiable(c) for c in group for _ in c.tensors]
    results, gradients = step(call, tensors, wants)
    fast = torch.compile(call, backend="idgraph", options={"log": log})
    found, mine = step(fast, tensors, wants)
    told: list[str] = []
    for what, a, b in (("result", found, results), ("gradient", mine, gradients)):
        for n, (x, y) in enumerate(zip(a, b, strict=True)):
            if x is None or y is None:  # torch captures a gradient that is zero everywhere as zeros
                given = y if x is None else x
                if given is not None and bool(given.any()):
                    told.append(f"{what} {n} of {', '.join(c.name for c in group)} is none")
            elif not _alike(x, y):
                told.append(f"{what} {n} of {', '.join(c.name for c in group)}: {_apart(x, y)}")
    if told and len(group) > 1:  # one by one, to name it, and to compare it with float64
        return [t for c in group for t in differences([c], log)]
    if told and all(t.startswith("result") for t in told):
        return [] if no_farther(group[0].call, group[0].tensors, tuple(found), tuple(results)) else told
    return told


def _differentiable(c: Case) -> bool:
    """Whether eager torch has gradients of it."""
    if not c.gradients:
        return False
    try:
        step(c.call, c.tensors, [True] * len(c.tensors))
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _alike(x: Tensor, y: Tensor) -> bool:
    try:
        torch.testing.assert_close(x, y, equal_nan=True)
    except AssertionError:
        return False
    return True


def _apart(x: Tensor, y: Tensor) -> str:
    if x.shape != y.shape or x.dtype != y.dtype:
        return f"{x.dtype}{tuple(x.shape)}, not {y.dtype}{tuple(y.shape)}"
    return f"{float((x.double() - y.double()).abs().nan_to_num().max()):.3g} apart"


def judged(case: Case, seconds: float) -> dict[str, Any]:
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


def written(out: Path, rows: Sequence[dict[str, Any]]) -> int:
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


def main() -> int:
    """0 where nothing differs and nothing fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of an operator's name")
    parser.add_argument("--every", type=int, default=1, help="each n-th operator only")
    parser.add_argument("--first", type=int, default=0, help="with --every: from this one on")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop beginning new operators after this")
    parser.add_argument("--case-seconds", type=float, default=30.0, help="of one operator; then it is slow")
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="only join the lines that these runs wrote")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.join:
        return written(given.out, [json.loads(x) for p in given.join for x in p.read_text().splitlines()])
    signal.signal(signal.SIGALRM, stop)
    warnings.simplefilter("ignore")
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    with given.out.with_suffix(".rows").open("w") as file:
        for case in cases(given.first, given.every, given.only):
            if time.monotonic() - began > given.seconds:
                break
            rows.append(judged(case, given.case_seconds))
            file.write(json.dumps(rows[-1]) + "\n")  # what a killed run has found
            file.flush()
    return written(given.out, rows)


if __name__ == "__main__":
    sys.exit(main())
