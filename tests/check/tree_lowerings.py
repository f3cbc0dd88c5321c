"""Random lowerings of small programs as trees of loops, right and with one fault: tiles with halos, folded and double
buffers, fill and update, partial sums, tails that are shifted back, updates in place, at random loop orders.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

Data = dict[str, Any]
Kind = Callable[[random.Random, str], Data]


def text(shape: str, *lines: str, output: str = "y") -> str:
    return "\n".join([f'fusion "f" {{\n  x = input(shape={shape}, dtype="float32")', *lines, f"  output {output}", "}"])


def put(name: str, to: str, at: str, *reads: Any, mode: str = "store", when: str = "True", **more: Any) -> Data:
    """A nest of one write; a read is (buffer, index) or (buffer, index, when)."""
    found = [{"buffer": b, "index": i, "when": w[0] if w else "True"} for b, i, *w in reads]
    return {"name": name, "writes": [{"buffer": to, "index": at, "mode": mode, "when": when, "reads": found}], **more}


def loop(name: str, extent: int, *body: Data, order: str = "serial", private: tuple[str, ...] = ()) -> Data:
    return {"for": [name, extent], "order": order, "private": list(private), "body": list(body)}


def cut(name: str, of: str, start: int, stop: int) -> str:
    return f"  {name} = slice({of}, dims=(0,), starts=({start},), stops=({stop},), steps=(1,))"


def stencil(n: int, reach: int) -> tuple[str, ...]:
    """y[i] = b[i] + b[i + reach], over n elements."""
    return "  b = exp(x)", cut("l", "b", 0, n), cut("r", "b", reach, n + reach), "  y = add(l, r)"


def any_or_not(r: random.Random) -> str:
    return r.choice(("any", "serial"))


def halo(r: random.Random, fault: str) -> Data:
    reach, tile, tiles = r.randint(1, 2), r.randint(2, 4), r.randint(2, 3)
    n, buffer, own = tile * tiles, r.choice(("b", "tmp")), r.random() < 0.5
    base = "" if own else f"t*{tile} + "
    made = tile + reach - (fault == "lost halo")
    make = loop("p", made, put("make", buffer, f"{base}p", ("x", f"t*{tile} + p")), order=any_or_not(r))
    far = reach + (fault == "other element")
    use = loop("i", tile, put("use", "y", f"t*{tile} + i", (buffer, f"{base}i"), (buffer, f"{base}i + {far}")))
    parts = (use, make) if fault == "swapped" else (make, use)
    private = (buffer,) if own and fault != "shared" else ()
    if fault == "shared" and not own:
        private = (buffer,)
        parts = (make,)
        tail = loop("u", tiles, loop("j", tile, put("late", "y", f"u*{tile} + j", (buffer, f"u*{tile} + j"))))
        return {
            "program": text(f"({n + reach},)", *stencil(n, reach)),
            "body": [loop("t", tiles, *parts, private=private), tail],
        }
    body = [loop("t", tiles, *parts, order="any" if fault == "shared" else any_or_not(r), private=private)]
    return {"program": text(f"({n + reach},)", *stencil(n, reach)), "body": body}


def folded(r: random.Random, fault: str) -> Data:
    reach, n = r.randint(1, 3), r.randint(5, 8)
    ring = reach + 1 + r.randint(0, 2)
    if fault == "small ring":
        ring = reach
    buffer = r.choice(("b", "ring"))
    first = loop("q", reach - (fault == "short start"), put("start", buffer, f"q%{ring}", ("x", "q")))
    make = put("make", buffer, f"(i + {reach})%{ring}", ("x", f"i + {reach}"))
    use = put("use", "y", "i", (buffer, f"i%{ring}"), (buffer, f"(i + {reach})%{ring}"))
    parts = (use, make) if fault == "swapped" else (make, use)
    order = "any" if fault == "any order" else "serial"
    return {"program": text(f"({n + reach},)", *stencil(n, reach)), "body": [first, loop("i", n, *parts, order=order)]}


def doubled(r: random.Random, fault: str) -> Data:
    tile, tiles = r.randint(2, 3), r.randint(2, 4)
    halves = 1 if fault == "one half" else 2
    first = loop("q", tile, put("first", "two", "q", ("x", f"{tile - 1} - q")))
    step = put("next", "two", f"(t + 1)%{halves}*{tile} + p", ("x", f"(t + 1)*{tile} + {tile - 1} - p"))
    guard = f"t < {tiles - 1 - (fault == 'lost last')}"
    ahead: Data = {"if": guard, "body": [loop("p", tile, step)]}
    half = "t + 1" if fault == "other half" else "t"
    use = loop("i", tile, put("use", "y", f"t*{tile} + i", ("two", f"({half})%2*{tile} + i")))
    lines = ("  b = exp(x)", f"  c = reshape(b, shape=({tiles}, {tile}))", "  y = flip(c, dims=(1,))")
    if halves == 2 or r.random() < 0.5:
        body = [first, loop("t", tiles, ahead, use)]
    else:
        body = [first, loop("t", tiles, use, ahead)]
    return {"program": text(f"({tile * tiles},)", *lines), "body": body}


def filled(r: random.Random, fault: str) -> Data:
    n, before, after = r.randint(2, 6), r.randint(1, 2), r.randint(0, 2)
    size = n + before + after
    fill = put("fill", "y", "i", loops=[["i", size - (fault == "short fill" and after > 0)]])
    shift = before + (fault == "other element") * r.choice((-1, 1))
    move = put("move", "y", f"i + {shift}", ("x", "i"), loops=[["i", n]])
    body = [move, fill] if fault == "swapped" else [fill, move]
    if fault == "short fill" and not after:
        body = [move]
    return {"program": text(f"({n},)", f"  y = pad(x, left=({before},), right=({after},), value=0.0)"), "body": body}


def step_of(r: random.Random, name: str, to: str, at: str, read: tuple[str, str], when: str) -> Data:
    """One step of a sum: an atomic one, or a load, a sum and a store."""
    if r.random() < 0.5:
        return put(name, to, at, read, mode="add", when=when)
    return put(name, to, at, (to, at), read, when=when)


def summed(r: random.Random, fault: str) -> Data:
    n, m, tile = r.randint(2, 4), r.randint(3, 7), r.randint(2, 3)
    outer = -(-m // tile)
    k = f"ko*{tile} + ki"
    when = "True" if fault == "lost mask" else f"{k} < {m}"
    step = step_of(r, "step", "y", "i", ("x", f"i*{m} + {k}"), when)
    start = put("start", "y", "i")
    at = loop("ko", outer, loop("ki", tile, step))
    first: Data = {"if": "ko == 0", "body": [start]}
    if fault == "start again":
        at = loop("ko", outer, start, loop("ki", tile, step))
    elif fault == "no start":
        pass
    elif r.random() < 0.5:
        at = loop("ko", outer, first, loop("ki", tile, step))
    else:
        rows = loop("j", n, put("start", "y", "j"))
        late = [loop("i", n, at, order=any_or_not(r))]
        body = [*late, rows] if fault == "swapped" else [rows, *late]
        return {"program": text(f"({n}, {m})", "  y = sum(x, dims=(1,))"), "body": body}
    if fault == "swapped":
        at = loop("ko", outer, loop("ki", tile, step), start)
    return {"program": text(f"({n}, {m})", "  y = sum(x, dims=(1,))"), "body": [loop("i", n, at, order=any_or_not(r))]}


def factored(r: random.Random, fault: str) -> Data:
    n, parts, tile = r.randint(2, 3), 2, r.randint(2, 3)
    m = parts * tile - r.randint(0, 1)
    k = f"h*{tile} + k"
    when = "True" if fault == "lost mask" and m < parts * tile else f"{k} < {m}"
    add = step_of(r, "part", "part", f"i*{parts} + h", ("x", f"i*{m} + {k}"), when)
    clear = put("clear", "part", f"i*{parts} + h")
    inner = [loop("k", tile, add)] if fault == "no start" else [clear, loop("k", tile, add)]
    partial = loop("i", n, loop("h", parts, *inner, order=any_or_not(r)))
    start = put("start", "y", "j")
    total = loop("g", parts - (fault == "lost part"), put("total", "y", "j", ("part", f"j*{parts} + g"), mode="add"))
    final = loop("j", n, *((total, start) if fault == "swapped" else (start, total)))
    order = "any" if fault == "any order" else "serial"
    if fault == "any order":
        final = loop("j", n, start, loop("g", parts, total["body"][0], put("again", "y", "j", ("y", "j")), order=order))
    return {"program": text(f"({n}, {m})", "  y = sum(x, dims=(1,))"), "body": [partial, final]}


def shifted(r: random.Random, fault: str) -> Data:
    tile = r.randint(2, 4)
    n = tile * r.randint(2, 3) - r.randint(1, tile - 1)
    at = f"min(t*{tile}, {n - tile}) + i"
    source = f"min(t*{tile} + i, {n - 1})" if fault == "other element" else at
    move = put("move", "y", at, ("x", source))
    if fault == "lost tile":
        move["writes"][0]["when"] = f"t*{tile} + {tile} <= {n}"
    if fault == "not shifted":
        move = put("move", "y", f"t*{tile} + i", ("x", f"t*{tile} + i"))
    body = loop("t", -(-n // tile), loop("i", tile, move, order=any_or_not(r)), order=any_or_not(r))
    return {"program": text(f"({n},)", "  y = exp(x)"), "body": [body]}


def replaced(r: random.Random, fault: str) -> Data:
    """y lies over x; z reads x too, before its elements are gone."""
    n, tile = 6, r.choice((2, 3))
    mirror = r.random() < 0.5
    source = f"({n - 1} - t*{tile} - i)" if mirror else f"(t*{tile} + i)"
    lines = ("  y = exp(x)", "  z = flip(x, dims=(0,))" if mirror else "  z = neg(x)", "  output y")
    over = loop("i", tile, put("over", "y", f"t*{tile} + i", ("x", f"t*{tile} + i")))
    keep = put("other", "z", f"t*{tile} + i", ("x", source))
    if mirror and not fault:
        body = [loop("t", n // tile, loop("i", tile, keep), order=any_or_not(r)), loop("t", n // tile, over)]
    elif fault == "swapped":
        body = [loop("t", n // tile, over, loop("i", tile, keep))]
    elif fault == "fused":
        keep["writes"][0]["reads"][0]["index"] = f"{n - 1} - t*{tile} - i"
        lines = (lines[0], "  z = flip(x, dims=(0,))", lines[2])
        body = [loop("t", n // tile, loop("i", tile, keep), over, order=any_or_not(r))]
    else:
        body = [loop("t", n // tile, loop("i", tile, keep), over, order=any_or_not(r))]
    p = text(f"({n},)", *lines, output="z")
    return {"program": p, "buffers": {"y": {"storage": "x"}}, "body": body}


def cut_down(r: random.Random, fault: str) -> Data:
    n, start = r.randint(3, 5), r.randint(0, 2)
    m, buffer = n + start + r.randint(0, 2), r.choice(("b", "tmp"))
    made = n - (fault == "lost element")
    make = loop("i", made, put("make", buffer, f"i + {start}", ("x", f"i + {start}")), order=any_or_not(r))
    at = f"j + {start + (fault == 'other element')}"
    use = loop("j", n, put("use", "y", "j", (buffer, at)), order=any_or_not(r))
    body = [use, make] if fault == "swapped" else [make, use]
    return {"program": text(f"({m},)", "  b = exp(x)", cut("y", "b", start, start + n)), "body": body}


def fused(r: random.Random, fault: str) -> Data:
    n, buffer = r.randint(3, 6), r.choice(("b", "tmp"))
    flipped = fault == "other point"
    make = put("make", buffer, "i", ("x", "i"))
    use = put("use", "y", "i", (buffer, f"{n - 1} - i" if flipped else "i"))
    lines = ("  b = exp(x)", "  y = flip(b, dims=(0,))" if flipped else "  y = neg(b)")
    body = [
        loop("i", n, *((use, make) if fault == "swapped" else (make, use)), order="any" if flipped else any_or_not(r))
    ]
    return {"program": text(f"({n},)", *lines), "body": body}


def gathered(r: random.Random, fault: str) -> Data:
    """y[i] = b[k[i]]: the index is loaded inside of a loop that makes b too."""
    n, m, buffer = r.randint(2, 4), r.randint(2, 5), r.choice(("b", "tmp"))
    at = {"": "i", "other index": f"{m - 1} - i"}.get(fault, "i")
    use = put("use", "y", "i", (buffer, f"{n - 1} - p" if fault == "other element" else "p"), ("k", at))
    use |= {"loads": {"v": {"buffer": "k", "index": at}}, "places": {"p": {"value": "v", "size": n}}}
    make = loop("j", n - (fault == "lost element"), put("make", buffer, "j", ("x", "j")), order=any_or_not(r))
    use = loop("i", m, use, order=any_or_not(r))
    parts = (use, make) if fault == "swapped" else (make, use)
    lines = (f'  k = input(shape=({m},), dtype="int64")', "  b = exp(x)", "  y = index_select(b, k, dim=0)")
    return {"program": text(f"({n},)", *lines), "body": [loop("t", r.randint(1, 2), *parts)]}


def scanned(r: random.Random, fault: str) -> Data:
    n, step = r.randint(3, 6), fault != "lost start"
    add = put("more", "acc", "0", ("x", f"{n - 1} - i" if fault == "other element" else "i"), mode="add")
    out = put("out", "y", "i", ("acc", "0"))
    parts = (out, add) if fault == "swapped" else (add, out)
    order = "any" if fault == "any order" else "serial"
    body = [put("zero", "acc", "0")] * step + [loop("i", n, *parts, order=order)]
    if not fault and r.random() < 0.5:
        body = [
            put("first", "y", "0", ("x", "0")),
            loop("i", n - 1, put("next", "y", "i + 1", ("x", "i + 1"), ("y", "i"))),
        ]
    return {"program": text(f"({n},)", "  y = cumsum(x, dim=0)"), "body": body}


def parts(r: random.Random, fault: str) -> Data:
    """A pointwise operation in parts: y = a, then y += b."""
    n = r.randint(2, 5)
    first = put("first", "y", "i", ("x", f"{n - 1} - i" if fault == "other element" else "i"))
    more = put("more", "y", "i", ("b", "i"), mode="add")
    if r.random() < 0.5:
        more = put("more", "y", "i", ("y", "i"), ("b", "i"))
    last = put("last", "y", "i", ("c", "i"), mode="add")
    order = {"swapped": (more, first, last), "lost part": (first, last)}.get(fault, (first, more, last))
    if r.random() < 0.5:
        body = [loop("i", n, *order, order=any_or_not(r))]
    else:
        body = [loop("i", n, x, order=any_or_not(r)) for x in order]
    lines = (f'  b = input(shape=({n},), dtype="float32")', f'  c = input(shape=({n},), dtype="float32")')
    return {"program": text(f"({n},)", *lines, "  y = fma(x, b, c)"), "body": body}


KINDS: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "halo": (halo, ("lost halo", "other element", "swapped", "shared")),
    "folded": (folded, ("small ring", "short start", "swapped", "any order")),
    "doubled": (doubled, ("one half", "lost last", "other half")),
    "filled": (filled, ("short fill", "other element", "swapped")),
    "summed": (summed, ("lost mask", "start again", "no start", "swapped")),
    "factored": (factored, ("lost mask", "no start", "lost part", "swapped", "any order")),
    "shifted": (shifted, ("other element", "lost tile", "not shifted")),
    "replaced": (replaced, ("swapped", "fused")),
    "cut down": (cut_down, ("lost element", "other element", "swapped")),
    "fused": (fused, ("other point", "swapped")),
    "gathered": (gathered, ("other index", "other element", "lost element", "swapped")),
    "scanned": (scanned, ("other element", "swapped", "any order", "lost start")),
    "parts": (parts, ("other element", "swapped", "lost part")),
}


def split(r: random.Random, body: list[Data]) -> list[Data]:
    """The same with some loops split in two, with a guard where the length is no multiple."""
    out: list[Data] = []
    for node in body:
        inner = split(r, node["body"]) if "body" in node else []
        again = {**node, "body": inner} if "body" in node else node
        if "for" not in node or not isinstance(node["for"][1], int) or r.random() < 0.6:
            out.append(again)
            continue
        (name, n), by = node["for"], r.randint(1, 3)
        at = f"({name}_o*{by} + {name}_i)"
        moved = json.loads(re.sub(rf"\b{name}\b(?!\":)", at, json.dumps(inner)))
        guarded = [{"if": f"{at} < {n}", "body": moved}] if n % by else moved
        low = {**node, "for": [f"{name}_i", by], "body": guarded}
        out.append({**node, "for": [f"{name}_o", -(-n // by)], "private": [], "body": [low]})
    return out


def tree_lowered(r: random.Random, kinds: Mapping[str, tuple[Kind, tuple[str, ...]]] = KINDS) -> Data:
    """A program in the neutral form, right in two of three cases."""
    make, faults = kinds[r.choice(sorted(kinds))]
    data: Data = {"version": 1, **make(r, r.choice(faults) if r.random() < 0.35 else "")}
    return {**data, "body": split(r, data["body"])} if r.random() < 0.4 else data
