"""Sources of six kernels as they are printed, stored as text: ``python -m tests.golden.kernels`` makes them anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import idgraph as ig
from idgraph.runtime import Target

HERE = Path(__file__).parent / "kernels"


def rotation() -> ig.Fusion:
    f = ig.Fusion("rotation")
    t0 = f.input("t0", shape=(64,))
    f.output(t0 + ig.cat([t0[32:], t0[:32]], dim=0))
    return f


def rope() -> ig.Fusion:
    f = ig.Fusion("rope")
    q = f.input("q", shape=(1, 8, 256, 128), dtype="bfloat16")
    cos, sin = f.input("cos", shape=(256, 128)), f.input("sin", shape=(256, 128))
    turned = ig.cat([-q[..., 64:], q[..., :64]], dim=-1)
    f.output(ig.cast(q * cos + turned * sin, "bfloat16"))
    return f


def transpose() -> ig.Fusion:
    f = ig.Fusion("transpose")
    f.output(f.input("x", shape=(1024, 1024)).T * 1.0)
    return f


def softmax() -> ig.Fusion:
    f = ig.Fusion("softmax")
    f.output(ig.softmax(f.input("x", shape=(512, 1024)), 1))
    return f


def loss() -> ig.Fusion:
    f = ig.Fusion("loss")
    x, y = f.input("x", shape=(512, 2048), dtype="bfloat16"), f.input("y", shape=(512,), dtype="int64")
    f.output(ig.cross_entropy(x, y))
    return f


def rows() -> ig.Fusion:
    f = ig.Fusion("rows")
    i, w = f.input("i", shape=(128,), dtype="int64"), f.input("w", shape=(1000, 256))
    f.output(ig.embedding(i, w))
    return f


KERNELS: Final[Mapping[str, tuple[Callable[[], ig.Fusion], Target, bool]]] = {
    "rotation.python": (rotation, "python", False),
    "rope.cuda": (rope, "cuda", True),
    "transpose.cuda": (transpose, "cuda", True),
    "softmax.cpu": (softmax, "cpu", True),
    "loss.cuda": (loss, "cuda", True),
    "rows.cuda": (rows, "cuda", True),
}


def source(name: str) -> str:
    """The text of the kernels of that name, the lines of this file left out of it."""
    build, target, auto = KERNELS[name]
    f = build()
    if auto:
        ig.schedule.auto(f)
    lines = ig.emit(f, target).source.splitlines()
    return "\n".join(line.partition("  at ")[0] for line in lines) + "\n"


def main() -> None:
    """Store what is printed now."""
    HERE.mkdir(exist_ok=True)
    for name in KERNELS:
        (HERE / f"{name}.txt").write_text(source(name), encoding="utf-8")
        print(f"stored {name}")


if __name__ == "__main__":
    main()
