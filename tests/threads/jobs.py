"""Jobs that threads do at once, and their answers as text. Run as a program: one process, many threads, first use.

``python -m tests.threads.jobs first SEED`` lets eight threads call the library for the first time at the same moment;
``python -m tests.threads.jobs soak SECONDS SEED`` compares eight threads with one for that long.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import idgraph as ig

THREADS = 8
Job = Callable[[random.Random], str]


def _fusion(r: random.Random) -> ig.Fusion:
    n = r.choice((8, 12, 16))
    f = ig.Fusion(f"f{n}")
    x = f.input("x", shape=(4, n))
    half = r.randrange(1, n)
    turned = ig.cat([x[:, half:], x[:, :half]], dim=1)
    y = x + turned if r.random() < 0.5 else ig.softmax(x * turned, 1)
    if r.random() < 0.5:
        y = ig.reshape(y, (2, 2 * n))
    f.output(y)
    return f


def text(r: random.Random) -> str:
    """A fusion, printed and read back."""
    f = _fusion(r)
    return str(ig.parse(str(f)))


def graphs(r: random.Random) -> str:
    """Groups and cycles of several graphs."""
    m = ig.IdModel(_fusion(r))
    return "\n".join([*map(str, m.exact.groups), *map(str, m.exact.cycles()), *map(str, m.almost_exact.groups)])


def maps(r: random.Random) -> str:
    """All index maps of a scheduled fusion."""
    f = _fusion(r)
    ig.schedule.auto(f)
    m = ig.IdModel(f)
    return "\n".join(str(m.index_map(e)) for e in f.exprs)


def source(r: random.Random) -> str:
    """Kernel source for one of the targets."""
    f = _fusion(r)
    ig.schedule.auto(f)
    return ig.emit(f, target=r.choice(("python", "numpy", "cpu", "cuda"))).source


def run(r: random.Random) -> str:
    """Values of the NumPy target, addresses and values checked."""
    report = ig.validate(_fusion(r), target=r.choice(("python", "numpy")), seed=r.randrange(3))
    return f"{report.ok} {report.points}"


def algebra(r: random.Random) -> str:
    """Simplifications whose rules ask for normal forms of other expressions, and proofs."""
    a, b, c = (r.choice((2, 3, 4, 8)) for _ in range(3))
    e = f"((i*{a} + j)//{b} % {c})*{b} + (i*{a} + j) % {b} + ((i + {a}) % {b * c} + {b * c}) % {b * c}"
    ranges = {"i": r.choice((8, 16, 31)), "j": a}
    return f"{ig.simplify(e, ranges)} {ig.prove_equal(e, f'{e} + i - i', ranges)}"


def shared_model(r: random.Random) -> str:
    """Questions to one model of one fusion that other threads ask too."""
    e = r.choice(_SHARED.exprs)
    return f"{_MODEL.index_map(e)}\n{len(_MODEL.exact.groups)} {len(_MODEL.index.groups)}"


def shared_program(r: random.Random) -> str:
    """Kernels of one program that other threads compile and run too."""
    target = r.choice(("numpy", "cpu"))
    with _LOCK:
        program = _PROGRAMS.setdefault(target, ig.emit(_SHARED, target=target))
    x = np.random.default_rng(r.randrange(4)).random(_SHARED.inputs[0].shape, np.float32)
    return "\n".join(f"{name} {value.tobytes().hex()}" for name, value in program.run({"x": x}).items())


def picture(r: random.Random) -> str:
    """A picture, as text."""
    return ig.IdModel(_fusion(r)).exact.to_svg()


JOBS: tuple[Job, ...] = (text, graphs, maps, source, run, algebra, shared_model, shared_program, picture)
_SHARED = _fusion(random.Random(5))
_MODEL = ig.IdModel(_SHARED)
_PROGRAMS: dict[str, Any] = {}
_LOCK = threading.Lock()


def answer(seed: int) -> str:
    """The result of the job of that number; the text of the error where it fails."""
    r = random.Random(seed)
    job = r.choice(JOBS)
    try:
        return job(r)
    except Exception as error:
        return f"{job.__name__}: {type(error).__name__}: {error}"


def together(seeds: list[int]) -> list[str]:
    """The answers of all jobs, done by eight threads that begin at the same moment."""
    found = [""] * len(seeds)
    start = threading.Barrier(THREADS)

    def work(first: int) -> None:
        start.wait()
        for k in range(first, len(seeds), THREADS):
            found[k] = answer(seeds[k])

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        workers = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
    finally:
        sys.setswitchinterval(before)
    return found


def main() -> int:
    """0 where all answers are those of one thread; prints those that are not."""
    mode, *numbers = sys.argv[1:]
    r = random.Random(int(numbers[-1]))
    until = time.monotonic() + (float(numbers[0]) if mode == "soak" else 0)
    jobs = wrong = 0
    while True:
        seeds = [r.randrange(1 << 30) for _ in range(3 * THREADS)]
        found = together(seeds)
        for seed, text in zip(seeds, found):
            jobs += 1
            if text != (alone := answer(seed)):
                wrong += 1
                print(f"job {seed}\n--- in a thread\n{text[:600]}\n--- alone\n{alone[:600]}")
        if time.monotonic() >= until:
            break
    print(f"{jobs} jobs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
