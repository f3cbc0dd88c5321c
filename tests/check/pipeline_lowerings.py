"""Random lowerings as schedulers of accelerators write them, right and with one fault: software pipelines, rings,
wavefronts, scans in steps, tiles through padded memory, tails that overlap, atomic steps, memory that moves in itself.
"""

from __future__ import annotations

import random

from tests.check.tree_lowerings import Data, Kind, any_or_not, cut, loop, put, text


def when(condition: str, *body: Data) -> Data:
    return {"if": condition, "body": list(body)}


def pipelined(r: random.Random, fault: str) -> Data:
    """Loads run ``ahead`` iterations before their use: prologue, steady loop, epilogue; registers are moved along."""
    n, ahead = r.randint(4, 7), r.randint(1, 2)
    regs = [f"r{k}" for k in range(ahead + 1)]
    start = [put(f"load{k}", regs[k], "0", ("x", str(k))) for k in range(ahead - (fault == "short prologue"))]
    fetch = put("fetch", regs[ahead], "0", ("x", f"i + {ahead + (fault == 'other element')}"))
    if fault == "other element":
        fetch = put("fetch", regs[ahead], "0", ("x", f"min(i + {ahead + 1}, {n - 1})"))
    use = put("use", "y", "i", (regs[0], "0"))
    moves = [put(f"move{k}", regs[k], "0", (regs[k + 1], "0")) for k in range(ahead)]
    steady = loop("i", n - ahead, fetch, use, *moves, order="any" if fault == "any order" else "serial")
    tail = [
        put(f"last{k}", "y", str(n - ahead + k), (regs[k], "0")) for k in range(ahead - (fault == "short epilogue"))
    ]
    return {"program": text(f"({n},)", "  y = exp(x)"), "body": [*start, steady, *tail]}


def staged(r: random.Random, fault: str) -> Data:
    """A tile of x in a ring of ``stages`` tiles, loaded ``stages - 1`` iterations before its use."""
    stages, tile, tiles = r.choice((2, 3)), r.randint(1, 3), r.randint(3, 5)
    ahead = stages - 1 + (fault == "too far ahead")
    ring = stages
    order = any_or_not(r)
    first = loop(
        "s",
        min(ahead, tiles) if fault != "short prologue" else ahead - 1,
        loop("p", tile, put("first", "ring", f"s%{ring}*{tile} + p", ("x", f"s*{tile} + p")), order=order),
    )
    slot = f"(t + {ahead})%{ring}"
    if fault == "other slot":
        slot = f"(t + {ahead + 1})%{ring}"
    load = when(
        f"t + {ahead} < {tiles}",
        loop("q", tile, put("load", "ring", f"{slot}*{tile} + q", ("x", f"(t + {ahead})*{tile} + q")), order=order),
    )
    use = loop("i", tile, put("use", "y", f"t*{tile} + i", ("ring", f"t%{ring}*{tile} + {tile - 1} - i")), order=order)
    parts = (use, load) if r.random() < 0.5 and fault != "too far ahead" else (load, use)
    lines = ("  b = exp(x)", f"  c = reshape(b, shape=({tiles}, {tile}))", "  y = flip(c, dims=(1,))")
    outer = "any" if fault == "any order" else "serial"
    return {"program": text(f"({tile * tiles},)", *lines), "body": [first, loop("t", tiles, *parts, order=outer)]}


def behind(r: random.Random, fault: str) -> Data:
    """A ring of rows that is read some iterations behind what it holds last."""
    n, back = r.randint(5, 8), r.randint(1, 3)
    ring = back + 1 + r.randint(0, 1) - (fault == "small ring") * r.randint(1, 2)
    ring = max(ring if fault != "small ring" else back, 1)
    make = put("make", "ring", f"i%{ring}", ("x", "i"))
    far = back - (fault == "other row")
    lines = ("  b = exp(x)", cut("l", "b", back, n), cut("r", "b", 0, n - back), "  y = add(l, r)")
    p = text(f"({n},)", *lines)
    if fault == "early":  # the row is read before it is there
        late = put("use", "y", f"i - {back}", ("ring", f"i%{ring}"), ("ring", f"(i - {back})%{ring}"))
        return {"program": p, "body": [loop("i", n, when(f"i >= {back}", late), make)]}
    use = put("use", "y", f"i - {back}", ("ring", f"i%{ring}"), ("ring", f"(i - {far})%{ring}"))
    body = [loop("i", n, make, when(f"i >= {back}", use), order="any" if fault == "any order" else "serial")]
    return {"program": p, "body": body}


def wavefront(r: random.Random, fault: str) -> Data:
    """Diagonals in order, the points of one in any order: each needs its neighbours of the diagonal before."""
    n, m = r.randint(2, 4), r.randint(2, 4)
    row, column = "i", "(d - i)"
    at = f"{row}*{m} + {column}"
    up, left = f"({row} - 1)*{m} + {column}", f"{row}*{m} + {column} - 1"
    if fault == "other diagonal":
        up, left = f"({row} + 1)*{m} + {column}", left
    reads = [
        ("b", at),
        ("b", up, "i >= 1" if fault != "other diagonal" else f"i < {n - 1}"),
        ("b", left, f"{column} >= 1"),
    ]
    make, use = put("make", "b", at, ("x", at)), put("use", "y", at, *reads)
    inside = f"({column} >= 0) & ({column} < {m})"
    span = n + m - 1 - (fault == "lost diagonal")
    body = loop(
        "d", span, loop("i", n, when(inside, make, use), order="any"), order="any" if fault == "any order" else "serial"
    )
    if fault == "lost mask":
        body = loop("d", span, loop("i", n, make, use, order="any"))
    lines = (
        "  b = exp(x)",
        f"  u = slice(b, dims=(0,), starts=(0,), stops=({n - 1},), steps=(1,))",
        "  up = pad(u, left=(1, 0), right=(0, 0), value=0.0)",
        f"  v = slice(b, dims=(1,), starts=(0,), stops=({m - 1},), steps=(1,))",
        "  left = pad(v, left=(0, 1), right=(0, 0), value=0.0)",
        "  y = fma(b, up, left)",
    )
    return {"program": text(f"({n}, {m})", *lines), "body": [body]}


def split_k(r: random.Random, fault: str) -> Data:
    """A sum in parts, each part by itself; the parts are added up at the end, in order or by atomic steps."""
    n, parts, tile = r.randint(1, 3), r.randint(2, 3), r.randint(2, 3)
    m = parts * tile - r.randint(0, tile - 1)
    k = f"s*{tile} + k"
    inside = "True" if fault == "lost mask" and m < parts * tile else f"{k} < {m}"
    op = r.choice(("sum", "amax"))
    step = put("step", "acc", "0", ("x", f"i*{m} + {k}"), mode="add", when=inside)
    own = [put("clear", "acc", "0"), loop("k", tile, step)]
    at = f"s*{n} + i" if fault != "one place" else "i"
    store = put("store", "part", at, ("acc", "0"))
    work = loop("s", parts, loop("i", n, *own, store, order="any", private=("acc",)), order="any")
    if fault == "shared register":
        work = loop("s", parts, loop("i", n, *own, store, order="any"), order="any")
    if r.random() < 0.5:
        add = put("total", "y", "j", ("part", f"g*{n} + j"), mode="add")
        final = [
            loop("j0", n, put("start", "y", "j0")),
            loop("g", parts, loop("j", n, add, order="any"), order=any_or_not(r)),
        ]
    else:
        add = put("total", "y", "j", ("part", f"g*{n} + j"), reduce=[["g", parts - (fault == "lost part")]])
        final = [loop("j", n, add, order="any")]
    if fault == "lost part":
        add = put("total", "y", "j", ("part", f"g*{n} + j"), reduce=[["g", parts - 1]])
        final = [loop("j", n, add, order="any")]
    return {"program": text(f"({n}, {m})", f"  y = {op}(x, dims=(1,))"), "body": [work, *final]}


def doubling_scan(r: random.Random, fault: str) -> Data:
    """Hillis and Steele: in step s each element adds the one 2^s before it, from one half of memory to the other."""
    n = r.randint(3, 8)
    op = r.choice(("cumsum", "cummax")) if fault != "added twice" else "cumsum"
    body: list[Data] = [loop("i", n, put("copy", "h0", "i", ("x", "i")), order="any")]
    step, k = 1, 0
    while step < n:
        a, b = f"h{k % 2}", f"h{(k + 1) % 2}"
        if fault == "one half":
            b = a
        far = step + (fault == "other step" and k == 1)
        name = f"i{k}"
        body.append(
            loop(name, n, put(f"s{k}", b, name, (a, name), (a, f"{name} - {far}", f"{name} >= {far}")), order="any")
        )
        if fault == "added twice" and k == 0:
            body.append(loop("z", n, put("z0", a, "z", (b, "z"), (a, "z - 1", "z >= 1")), order="serial"))
            body.append(loop("w", n, put("w0", b, "w", (a, "w")), order="serial"))
        step, k = step * 2, k + 1
    if fault == "lost step":
        body.pop()
        k -= 1
    last = "h0" if fault == "one half" else f"h{k % 2}"
    body.append(loop("o", n, put("out", "y", "o", (last, "o")), order="any"))
    return {"program": text(f"({n},)", f"  y = {op}(x, dim=0)"), "body": body}


def padded_tile(r: random.Random, fault: str) -> Data:
    """A transposition by tiles in memory whose rows are one element longer; all load, then all store."""
    tile, rows, columns = r.randint(2, 3), r.randint(3, 6), r.randint(3, 6)
    pitch = tile + r.randint(0, 1)
    size = {"tile": {"size": pitch * (tile - 1) + tile}}
    other = tile if fault == "other pitch" and pitch != tile else pitch + (fault == "other pitch")
    at, to = f"a*{tile} + p", f"b*{tile} + q"
    inside = f"({at} < {rows}) & ({to} < {columns})"
    back = f"(a*{tile} + w < {rows}) & (b*{tile} + v < {columns})"
    if fault == "lost mask":
        inside = "True"
    fill = loop(
        "p",
        tile,
        loop(
            "q",
            tile,
            put("fill", "tile", f"p*{pitch} + q", ("x", f"({at})*{columns} + {to}"), when=inside),
            order="any",
        ),
        order="any",
    )
    read = f"w*{other} + v" if fault != "not turned" else f"v*{pitch} + w"
    out = loop(
        "v",
        tile,
        loop(
            "w", tile, put("out", "y", f"(b*{tile} + v)*{rows} + a*{tile} + w", ("tile", read), when=back), order="any"
        ),
        order="any",
    )
    parts = (fill, out)
    if fault == "no barrier":  # each point stores what another one may not have loaded yet
        turned = f"({at} < {rows}) & ({to} < {columns})"
        swap = put("out", "y", f"({to})*{rows} + {at}", ("tile", f"p*{pitch} + q"), when=turned)
        swap["writes"][0]["reads"][0]["index"] = f"min(q, {rows - 1} - a*{tile})*{pitch} + p"
        parts = (loop("p", tile, loop("q", tile, fill["body"][0]["body"][0], swap, order="any"), order="any"),)
    private = () if fault == "shared" else ("tile",)
    blocks = loop(
        "a", -(-rows // tile), loop("b", -(-columns // tile), *parts, order="any", private=private), order="any"
    )
    return {"program": text(f"({rows}, {columns})", "  y = permute(x, dims=(1, 0))"), "buffers": size, "body": [blocks]}


def tail(r: random.Random, fault: str) -> Data:
    """A last tile that is shifted back, of what is combined or added: elements of two tiles count once or not."""
    tile = r.randint(2, 4)
    n, rows = tile * r.randint(1, 3) + r.randint(1, tile - 1), r.randint(1, 2)
    at = f"min(t*{tile}, {n - tile}) + i"
    op = {"": "amax", "added": "sum", "lost": "amin"}.get(fault, "amax")
    step = put("step", "y", "j", ("x", f"j*{n} + {at}"), mode="add")
    if fault == "lost":
        step["writes"][0]["when"] = f"t*{tile} + {tile} <= {n}"
    if fault == "other":
        step = put("step", "y", "j", ("x", f"j*{n} + min({at}, {n - 2})"), mode="add")
    order = any_or_not(r)
    work = loop("t", -(-n // tile), loop("i", tile, step, order=order), order=order)
    body = [loop("j0", rows, put("start", "y", "j0")), loop("j", rows, work, order=any_or_not(r))]
    return {"program": text(f"({rows}, {n})", f"  y = {op}(x, dims=(1,))"), "body": body}


def clamped(r: random.Random, fault: str) -> Data:
    """Points behind the end do the last point again: once more the same value, or once more added."""
    tile = r.randint(2, 4)
    n = tile * r.randint(1, 2) + r.randint(1, tile - 1)
    at = f"min(t*{tile} + i, {n - 1})"
    source = {"other element": f"min(t*{tile} + i, {n - 1} - i)"}.get(fault, at)
    order = any_or_not(r)
    if fault == "in place":
        body = [
            loop("f", n, put("fill", "y", "f", ("x", "f"))),
            loop("t", -(-n // tile), loop("i", tile, put("more", "y", at, ("y", at), ("z", at)))),
        ]
        return {
            "program": text(f"({n},)", f'  z = input(shape=({n},), dtype="float32")', "  y = add(x, z)"),
            "body": body,
        }
    if fault == "added":
        body = [
            loop("f", n, put("fill", "y", "f", ("x", "f"))),
            loop(
                "t",
                -(-n // tile),
                loop("i", tile, put("more", "y", at, ("z", at), mode="add"), order=order),
                order=order,
            ),
        ]
        return {
            "program": text(f"({n},)", f'  z = input(shape=({n},), dtype="float32")', "  y = add(x, z)"),
            "body": body,
        }
    body = [loop("t", -(-n // tile), loop("i", tile, put("move", "y", at, ("x", source)), order=order), order=order)]
    return {"program": text(f"({n},)", "  y = exp(x)"), "body": body}


def atomic(r: random.Random, fault: str) -> Data:
    """Sums by atomic steps in any order."""
    n, m = r.randint(2, 3), r.randint(2, 4)
    step = put("step", "y", "i", ("x", f"i*{m} + k"), mode="add")
    if fault == "load and store":
        step = put("step", "y", "i", ("x", f"i*{m} + k"), ("y", "i"))
    if fault == "stored":
        step = put("step", "y", "i", ("x", f"i*{m} + k"))
    if fault == "other row":
        step = put("step", "y", f"(i + k)%{n}", ("x", f"i*{m} + k"), mode="add")
    start = loop("j", n, put("start", "y", "j"), order="any")
    grid = loop("k", m, loop("i", n, step, order="any"), order="any")
    body = [grid, start] if fault == "swapped" else [start, grid]
    if fault == "read too early":
        out = put("out", "z", "i", ("y", "i"))
        body = [start, loop("k", m, loop("i", n, step, out, order="any"), order="any")]
        return {"program": text(f"({n}, {m})", "  y = sum(x, dims=(1,))", "  z = exp(y)", output="z"), "body": body}
    return {"program": text(f"({n}, {m})", "  y = sum(x, dims=(1,))"), "body": body}


def slid(r: random.Random, fault: str) -> Data:
    """Memory that moves in itself: y[i] is x one place further, stored over x; from the end that is safe."""
    n, by = r.randint(4, 7), r.randint(1, 2)
    down = r.random() < 0.5
    source, to = (f"i + {by}", "i") if down else ("i", f"i + {by}")
    turn = (not down) != (fault == "other direction")
    i = f"{n - by - 1} - i" if turn else "i"
    move = put("move", "y", to.replace("i", f"({i})"), ("x", source.replace("i", f"({i})")))
    order = "any" if fault == "any order" else "serial"
    if down:
        lines = (cut("s", "x", by, n), cut("e", "x", n - by, n), "  y = cat(s, e, dim=0)")
    else:
        lines = (cut("s", "x", 0, by), cut("e", "x", 0, n - by), "  y = cat(s, e, dim=0)")
    body = [loop("i", n - by, move, order=order)]
    if fault == "other offset":
        body = [loop("i", n - by - 1, put("move", "y", f"({i})%{n}", ("x", f"({i} + 1)%{n}")))]
    return {"program": text(f"({n},)", *lines), "buffers": {"y": {"storage": "x"}}, "body": body}


def overlaid(r: random.Random, fault: str) -> Data:
    """Two temporaries in one memory by strides and offsets: even and odd elements, or one after the other is dead."""
    n = r.randint(3, 5)
    odd = {"": 1, "same place": 0, "one off": 2}.get(fault, 1)
    a = put("a", "even", "2*i", ("x", "i"))
    b = put("b", "odd", "2*i", ("x", f"{n - 1} - i"))
    use = put("use", "y", "i", ("even", "2*i"), ("odd", "2*i"))
    parts = [loop("i", n, a, order="any"), loop("i", n, b, order="any"), loop("i", n, use, order="any")]
    if fault == "swapped":
        parts = [parts[0], parts[2], parts[1]]
    for k, p in enumerate(parts):
        p["for"] = [f"i{k}", n]
        w = p["body"][0]["writes"][0]
        w["index"] = w["index"].replace("i", f"i{k}")
        w["reads"] = [{**x, "index": x["index"].replace("i", f"i{k}")} for x in w["reads"]]
    buffers = {
        "even": {"storage": "m", "base": 0, "size": 2 * n + 2},
        "odd": {"storage": "m", "base": odd, "size": 2 * n + 2},
    }
    lines = ("  a = exp(x)", "  f = flip(x, dims=(0,))", "  b = sin(f)", "  y = add(a, b)")
    return {"program": text(f"({n},)", *lines), "buffers": buffers, "body": parts}


def empty(r: random.Random, fault: str) -> Data:
    """Loops of no iteration around what would be wrong, or around what is needed."""
    n = r.randint(2, 4)
    move = loop("i", n, put("move", "y", "i", ("x", "i")), order=any_or_not(r))
    junk = put("junk", "y", "0", ("x", str(n - 1)))
    trips = 1 if fault == "runs once" else 0
    body = [move, loop("z", trips, junk, order=any_or_not(r))]
    if fault == "lost":
        body = [loop("z", 0, move)]
    if fault == "outside":
        body = [move, loop("z", 1, put("junk", "y", str(n), ("x", "0")))]
    return {"program": text(f"({n},)", "  y = exp(x)"), "body": body}


def symbolic(r: random.Random, fault: str) -> Data:
    """Tiles of a dynamic length: guards, halves, tails that are shifted back."""
    tile, kind = r.randint(2, 4), r.randrange(3)
    guard = {"lost tail": f"t*{tile} + {tile} <= n", "": f"t*{tile} + i < n"}.get(fault, f"t*{tile} + i < n")
    source = {"other element": f"max(n - 2 - t*{tile} - i, 0)"}.get(fault, f"n - 1 - t*{tile} - i")
    if fault == "lost mask":
        guard = f"t*{tile} <= n"
    t = f"(n + {tile - 1})//{tile}"
    order = any_or_not(r)
    if kind == 0:
        body = [
            {
                "for": ["t", t],
                "order": order,
                "body": [loop("i", tile, put("move", "y", f"t*{tile} + i", ("x", source), when=guard), order=order)],
            }
        ]
        lines: tuple[str, ...] = ("  y = flip(x, dims=(0,))",)
    elif kind == 1:
        make = put("make", "b", f"t*{tile} + i", ("x", f"t*{tile} + i"), when=guard)
        use = put("use", "y", "j", ("b", source.replace(f"t*{tile}", "0").replace("- i", "- j")))
        body = [
            {"for": ["t", t], "order": order, "body": [loop("i", tile, make, order=order)]},
            {"for": ["j", "n"], "order": order, "body": [use]},
        ]
        lines = ("  b = exp(x)", "  y = flip(b, dims=(0,))")
    else:
        make = put("make", "b", f"t*{tile} + i", ("x", f"t*{tile} + i"), when=guard)
        use = put(
            "use",
            "y",
            f"t*{tile} + i",
            ("b", f"t*{tile} + i" if fault != "other element" else f"max(t*{tile} + i - 1, 0)"),
            when=f"t*{tile} + i < n",
        )
        body = [{"for": ["t", t], "order": order, "body": [loop("i", tile, make, use, order=order)]}]
        lines = ("  b = exp(x)", "  y = neg(b)")
    p = "\n".join(
        ['fusion "f" {', "  symbol n min=1", '  x = input(shape=(`n`,), dtype="float32")', *lines, "  output y", "}"]
    )
    return {"program": p, "symbols": {"n": {"min": 1}}, "body": body}


PIPELINES: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "pipelined": (pipelined, ("short prologue", "other element", "any order", "short epilogue")),
    "staged": (staged, ("too far ahead", "short prologue", "other slot", "any order")),
    "behind": (behind, ("small ring", "other row", "early", "any order")),
    "wavefront": (wavefront, ("other diagonal", "lost diagonal", "any order", "lost mask")),
    "split k": (split_k, ("lost mask", "one place", "shared register", "lost part")),
    "doubling scan": (doubling_scan, ("one half", "other step", "lost step", "added twice")),
    "padded tile": (padded_tile, ("other pitch", "not turned", "no barrier", "shared", "lost mask")),
    "tail": (tail, ("added", "lost", "other")),
    "clamped": (clamped, ("other element", "in place", "added")),
    "atomic": (atomic, ("load and store", "stored", "other row", "swapped", "read too early")),
    "slid": (slid, ("other direction", "any order", "other offset")),
    "overlaid": (overlaid, ("same place", "one off", "swapped")),
    "empty": (empty, ("runs once", "lost", "outside")),
    "symbolic": (symbolic, ("lost tail", "lost mask", "other element")),
}
