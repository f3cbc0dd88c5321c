"""Lowerings of small programs of a symbolic length, right and with one fault: what a read sees depends on the order."""

from __future__ import annotations

import random
from typing import Any

from tests.check.tree_lowerings import Data, Kind, put


def loop(name: str, extent: str | int, *body: Data, order: str = "serial", private: tuple[str, ...] = ()) -> Data:
    return {"for": [name, extent], "order": order, "private": list(private), "body": list(body)}


def program(least: int, body: list[Data], *lines: str, shape: str = "(`n`,)", step: int = 1, **more: Any) -> Data:
    head = f"  symbol n min={least}" + (f" multiple_of={step}" if step > 1 else "")
    text = ['fusion "f" {', head, f'  x = input(shape={shape}, dtype="float32")', *lines, "  output y", "}"]
    symbols = {"n": {"min": least, "multiple_of": step}}
    return {"program": "\n".join(text), "symbols": symbols, "body": body, **more}


def stencil(reach: int) -> tuple[str, ...]:
    """y[i] = b[i] + b[i + reach]."""
    return (
        "  b = exp(x)",
        f"  l = slice(b, dims=(0,), starts=(0,), stops=(`n - {reach}`,), steps=(1,))",
        f"  r = slice(b, dims=(0,), starts=({reach},), stops=(`n`,), steps=(1,))",
        "  y = add(l, r)",
    )


def folded(r: random.Random, fault: str) -> Data:
    """A ring of rows that a loop in order fills ahead of its reads."""
    reach = r.randint(1, 3)
    ring = reach + (fault != "small ring") + (0 if fault == "small ring" else r.randint(0, 2))
    first = loop("q", reach - (fault == "short start"), put("start", "ring", f"q%{ring}", ("x", "q")))
    make = put("make", "ring", f"(i + {reach})%{ring}", ("x", f"i + {reach}"))
    use = put("use", "y", "i", ("ring", f"i%{ring}"), ("ring", f"(i + {reach})%{ring}"))
    parts = (use, make) if fault == "swapped" else (make, use)
    order = "any" if fault == "any order" else "serial"
    return program(reach + 1, [first, loop("i", f"n - {reach}", *parts, order=order)], *stencil(reach))


def halved(r: random.Random, fault: str) -> Data:
    """A double buffer: the next tile is loaded while this one is read."""
    tile, step = r.randint(2, 3), 1 if r.random() < 0.5 else 2
    trips, half = f"(n + {tile - 1})//{tile}", "t" if fault != "other half" else "t + 1"
    first = loop("q", tile, put("first", "two", "q", ("x", "q"), when="q < n"))
    at = f"(t + 1)*{tile} + p"
    copies = 1 if fault == "one half" else 2
    load = loop("p", tile, put("next", "two", f"(t + 1)%{copies}*{tile} + p", ("x", at), when=f"{at} < n"), order="any")
    use = put("use", "y", f"t*{tile} + i", ("two", f"({half})%{copies}*{tile} + i"), when=f"t*{tile} + i < n")
    body = [loop("t", trips, load, loop("i", tile, use))]
    return program(step, [*([] if fault == "no start" else [first]), *body], "  y = exp(x)", step=step)


def moved_back(r: random.Random, fault: str) -> Data:
    """The last tile is moved back, so that its elements are written again: the same, or added once more."""
    tile, order = r.randint(2, 4), r.choice(("any", "serial"))
    at = f"min(t*{tile}, n - {tile}) + i"
    source = {"other element": f"min(t*{tile} + i, n - 1)"}.get(fault, at)
    move = put("move", "y", at, ("x", source))
    if fault == "lost tail":
        move["writes"][0]["when"] = f"t*{tile} + {tile} <= n"
    if fault == "added":
        fill = loop("f", "n", put("fill", "y", "f"))
        move = put("move", "y", at, ("x", at), mode="add")
        return program(tile, [fill, loop("t", f"(n + {tile - 1})//{tile}", loop("i", tile, move))], "  y = neg(x)")
    body = loop("t", f"(n + {tile - 1})//{tile}", loop("i", tile, move, order=order), order=order)
    return program(tile, [body], "  y = exp(x)")


def halo(r: random.Random, fault: str) -> Data:
    """A producer computed in tiles, each with its halo."""
    reach, tile = r.randint(1, 2), r.randint(2, 4)
    own = r.random() < 0.5 or fault == "shared"
    base = "" if own else f"t*{tile} + "
    inside = f"t*{tile} + p < n"
    make = put("make", "tile", f"{base}p", ("x", f"t*{tile} + p"), when=inside)
    use = put(
        "use",
        "y",
        f"t*{tile} + i",
        ("tile", f"{base}i"),
        ("tile", f"{base}i + {reach}"),
        when=f"t*{tile} + i < n - {reach}",
    )
    parts = [loop("p", tile + reach - (fault == "lost halo"), make, order="any"), loop("i", tile, use, order="any")]
    order = "any" if fault == "shared" else "serial"
    private = ("tile",) if own and fault != "shared" else ()
    body = loop("t", f"(n - {reach} + {tile - 1})//{tile}", *parts, order=order, private=private)
    return program(reach + 1, [body], *stencil(reach))


def steps(r: random.Random, fault: str) -> Data:
    """A sum in tiles of steps, from a start that stands before them or in the first of them."""
    tile, rows = r.randint(2, 4), r.randint(1, 3)
    k = f"ko*{tile} + ki"
    when = "True" if fault == "lost mask" else f"{k} < n"
    step = put(
        "step",
        "y",
        "i",
        ("y", "i"),
        ("x", f"i*n + min({k}, n - 1)" if fault == "lost mask" else f"i*n + {k}"),
        when=when,
    )
    work = loop("ko", f"(n + {tile - 1})//{tile}", loop("ki", tile, step))
    start: Data = put("start", "y", "i")
    if fault == "start again":
        body = [loop("i", rows, {**work, "body": [start, *work["body"]]})]
    elif r.random() < 0.5:
        body = [loop("i", rows, *((work, start) if fault == "swapped" else (start, work)), order="any")]
    else:
        early = loop("j", rows, put("start", "y", "j"), order="any")
        late = loop("i", rows, work, order="any")
        body = [late, early] if fault == "swapped" else [early, late]
    return program(tile, body, "  y = sum(x, dims=(1,))", shape=f"({rows}, `n`)")


def filled(r: random.Random, fault: str) -> Data:
    """Padding: all is filled, then the middle is written over."""
    low, high = r.randint(0, 2), r.randint(1, 2)
    fill = loop("f", f"n + {low + high - (fault == 'short')}", put("fill", "y", "f"), order="any")
    move = loop("i", "n", put("move", "y", f"i + {low + (fault == 'other element')}", ("x", "i")), order="any")
    body = [move, fill] if fault == "swapped" else [fill, move]
    return program(1, body, f"  y = pad(x, left=({low},), right=({high},), value=0.0)")


def over_input(r: random.Random, fault: str) -> Data:
    """A result stored over its argument, element by element, or one place further in the order that is safe."""
    mirror = fault == "mirrored"
    source = "n - 1 - i" if mirror else "i + 1"
    if mirror:
        return program(2, [loop("i", "n", put("over", "y", "i", ("x", source)))], "  y = flip(x, dims=(0,))",
                       buffers={"y": {"storage": "x"}})  # fmt: skip
    turned = "n - 2 - i" if fault == "other direction" else "i"
    move = put("over", "y", turned, ("x", f"{turned} + 1"))
    lines = (
        "  s = slice(x, dims=(0,), starts=(1,), stops=(`n`,), steps=(1,))",
        "  e = slice(x, dims=(0,), starts=(`n - 1`,), stops=(`n`,), steps=(1,))",
        "  y = cat(s, e, dim=0)",
    )
    order = "any" if fault == "any order" else "serial"
    return program(2, [loop("i", "n - 1", move, order=order)], *lines, buffers={"y": {"storage": "x"}})


DYNAMIC: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "folded": (folded, ("small ring", "short start", "swapped", "any order")),
    "halved": (halved, ("other half", "one half", "no start")),
    "moved back": (moved_back, ("other element", "lost tail", "added")),
    "halo": (halo, ("lost halo", "shared")),
    "steps": (steps, ("lost mask", "start again", "swapped")),
    "filled": (filled, ("short", "other element", "swapped")),
    "over input": (over_input, ("mirrored", "other direction", "any order")),
}
