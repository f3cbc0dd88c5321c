"""``python -m tools.docs.pictures``: draw the pictures of README and pages into ``tools/docs/pictures``.

A test draws them again and compares, so that they show what the code shows today.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import idgraph as ig
from idgraph import viz
from idgraph.graphs import Cycle

FOLDER = Path(__file__).resolve().parent / "pictures"


def rotation() -> ig.IdModel:
    """The README's program: half a rotation and its residual."""
    f = ig.Fusion("rotation")
    t0 = f.input("t0", shape=(8,))
    t3 = ig.cat([t0[4:], t0[:4]], dim=0)
    f.output(t0 + t3)
    return ig.IdModel(f)


def rope() -> ig.Fusion:
    """Rotary embedding of one head."""
    f = ig.Fusion("rope")
    q, cos, sin = f.input("q", (8, 64)), f.input("cos", (8, 64)), f.input("sin", (8, 64))
    rotated = ig.cat([-q[:, 32:], q[:, :32]], dim=-1, name="rotated")
    f.output(ig.add(q * cos, rotated * sin, name="y"))
    return f


def cycle(kind: str) -> Cycle[Any]:
    """A cycle of each kind: halves joined in place, rotated, flipped; rotated by 3 and 17 of 20."""
    f = ig.Fusion(kind)
    t = f.input("t", shape=(20,) if kind == "empty" else (64,))
    match kind:
        case "identity":
            u = ig.cat([t[:32], t[32:]])
        case "shift":
            u = ig.cat([t[32:], t[:32]])
        case "empty":
            once = ig.cat([t[3:], t[:3]])
            u = ig.cat([once[17:], once[:17]])
        case _:
            u = ig.flip(t, 0)
    f.output(t + u)
    return next(c for c in ig.IdModel(f).exact.cycles(empty=True) if c.kind == kind)


def swizzled() -> str:
    """A column of a tile in shared memory, before and after its swizzle."""
    f = ig.Fusion("tile")
    t = ig.copy(f.input("a", shape=(2, 16, 16)), name="t").set_memory("shared")
    u = f.output(ig.permute(t, (0, 2, 1)))
    for x in (t, u):
        x.parallelize(0, "blockIdx.x").parallelize(2, "threadIdx.x")
    loops = t.loop
    t.swizzle("xor", 1, 2)
    t.set_allocation(t.loop).set_loop(loops).inline(1)
    return ig.IdModel(f).read(f.exprs[-1], 0).picture().to_svg()


CELL, GAP = 44, 18  # pixels of a cell, and between parts of the README's picture
COLOURS = ("#4c78a8", "#72a0cc", "#9ec5e8", "#cfe3f5", "#f5d6b8", "#eab184", "#dd8452", "#b85f2e")


def front() -> str:
    """The README's: elements before and after a rotation by half, then its cycle beside its index graph."""
    parts = [_placed(rotation_cells(), 0, 0)]
    top = 2 * CELL + 70
    model = rotation()
    left, right = viz.to_svg(model.exact.cycles()[0]), model.index.to_svg()
    (wide, high), (other, tall) = _size(left), _size(right)
    scale = 0.62  # the index graph is the larger one
    parts += [_placed(left, 0, top), _placed(right, wide + GAP, top, scale)]
    width, height = wide + GAP + other * scale, top + max(high, tall * scale)
    box = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    return f'{head}<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'


def rotation_cells() -> str:
    """Two rows of eight cells: the colour of an element is where it came from, computed by running the fusion."""
    f = rotation().fusion
    f.output(f["t3"])
    moved = ig.emit(f, "python").run({"t0": np.arange(8, dtype=np.float32)})["t3"].astype(int).tolist()
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{CELL * 8 + 350}" height="{2 * CELL + 60}">']
    for row, (name, values) in enumerate((("t0", range(8)), ("t3 = ig.cat([t0[4:], t0[:4]], dim=0)", moved))):
        y = 10 + row * (CELL + 26)
        for n, v in enumerate(values):
            x0, ink = 8 + n * CELL, "#ffffff" if COLOURS[v] in COLOURS[:2] + COLOURS[-2:] else "#1f2430"
            out.append(f'<rect x="{x0}" y="{y}" width="{CELL - 3}" height="{CELL - 3}" rx="5" fill="{COLOURS[v]}"/>')
            out.append(
                f'<text x="{x0 + CELL / 2 - 1.5}" y="{y + CELL / 2 + 4}" text-anchor="middle" fill="{ink}">{v}</text>'
            )
        out.append(f'<text x="{20 + 8 * CELL}" y="{y + CELL / 2 + 4}" fill="#1f2430">{name}</text>')
    return "".join([*out, "</svg>"]).replace(
        "<text ", '<text font-family="DejaVu Sans Mono,Menlo,monospace" font-size="14" '
    )


def _size(text: str) -> tuple[float, float]:
    found = re.search(r'<svg[^>]* width="([\d.]+)\w*" height="([\d.]+)', text)
    assert found is not None
    return float(found[1]), float(found[2])


def _placed(text: str, x: float, y: float, scale: float = 1.0) -> str:
    return f'<g transform="translate({x:g},{y:g}) scale({scale:g})">{text[text.index("<svg") :].strip()}</g>'


PICTURES: dict[str, Callable[[], str]] = {
    "rotation": front,
    "fusion_rope": lambda: rope().to_svg(),
    "index_rotation": lambda: rotation().index.to_svg(),
    "extents": lambda: rotation().extents.to_svg(),
    "aligned": lambda: rotation().aligned.to_svg(),
    "cycle_identity": lambda: viz.to_svg(cycle("identity")),
    "cycle_shift": lambda: viz.to_svg(cycle("shift")),
    "access_swizzle": swizzled,
    "cycle_reorder": lambda: viz.to_svg(cycle("reorder")),
    "cycle_empty": lambda: viz.to_svg(cycle("empty")),
}

CAPTIONS = {  # of the gallery, "title: what is seen"
    "rotation": "Rotation by half: elements before and after, the shift cycle beside the index graph",
    "fusion_rope": "A fusion: rotary embedding as a DAG of tensor operations, each axis an IterDomain",
    "index_rotation": "Index graph: a frame for each operation, a box for each coordinate in it",
    "extents": "Extents graph: axes whose extents are equal",
    "aligned": "Aligned graph: axes that pointwise operations put side by side, with the operations that say so",
    "cycle_identity": "Identity cycle: halves joined as they were",
    "cycle_shift": "Shift cycle: a rotation and its residual, 32 elements further with each round",
    "cycle_reorder": "Reorder cycle: a flip maps an axis onto itself, backwards",
    "cycle_empty": "Empty cycle: two rotations that together leave every element where it was",
    "access_swizzle": "Shared memory: a column of a tile, before and after its XOR swizzle",
}


def main() -> int:
    """Draw all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")
        print(FOLDER / f"{name}.svg")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
