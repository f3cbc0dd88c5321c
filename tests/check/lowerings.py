"""Random programs of one tensor and random lowerings of them, right and wrong: fused kernels, exchanged nests, updates
in place, memory laid over other memory with and without saying so, formulas with a mistake, nests that are missing.
"""

from __future__ import annotations

import random
from itertools import groupby, pairwise
from math import prod
from typing import Any

import idgraph as ig

Coordinates = list[str]
Reads = list[tuple[Coordinates, str]]  # coordinates of the operand, and where it is read


def _step(x: ig.Tensor, kind: str, c: Coordinates, r: random.Random) -> tuple[ig.Tensor, Reads, list[list[Any]]]:
    """One operation; what it reads at ``c``; its reduced loops."""
    n = [int(v) for v in x.shape]
    d = r.randrange(len(n))

    def at(text: str) -> Coordinates:
        return [text if k == d else v for k, v in enumerate(c)]

    if kind == "flip":
        return ig.flip(x, (d,)), [(at(f"{n[d] - 1} - {c[d]}"), "True")], []
    if kind == "transpose" and len(n) == 2:
        return ig.permute(x, (1, 0)), [(c[::-1], "True")], []
    if kind == "stencil" and n[d] > 2:
        parts = [x[tuple(slice(k, n[d] - 1 + k) if j == d else slice(None) for j in range(len(n)))] for k in (0, 1)]
        return parts[0] + parts[1], [(c, "True"), (at(f"{c[d]} + 1"), "True")], []
    if kind == "pad":
        before = [(0, 0)] * len(n)
        before[d] = (1, 0)
        widths = tuple(v for pair in reversed(before) for v in pair)
        return ig.pad(x, widths, 0.0), [(at(f"{c[d]} - 1"), f"{c[d]} >= 1")], []
    if kind == "sum" and len(n) == 2:
        return ig.sum(x, d), [([c[0], "r"] if d else ["r", c[0]], "True")], [["r", n[d]]]
    return ig.exp(x), [(c, "True")], []


def _address(c: Coordinates, shape: list[int]) -> str:
    steps = [prod(shape[k + 1 :]) for k in range(len(shape))]
    return " + ".join(f"({x})*{s}" for x, s in zip(c, steps, strict=True)) or "0"


def _scheduled(nests: list[dict[str, Any]], r: random.Random) -> None:
    """Kernels of one nest or two, and two nests exchanged."""
    for a, b in pairwise(nests):
        if prod(v for _, v in a["loops"]) == prod(v for _, v in b["loops"]) and r.random() < 0.4:
            a["kernel"] = a["kernel"] or f"fused{a['name']}"
            b["kernel"] = a["kernel"]
    for n in nests:
        if r.random() < 0.2:
            n["kernel"] = n["kernel"] or f"own{n['name']}"
    if r.random() < 0.12 and len(nests) > 1:
        k = r.randrange(len(nests) - 1)
        nests[k], nests[k + 1] = nests[k + 1], nests[k]
    kernels = [k for k, _ in groupby(n["kernel"] for n in nests)]
    for n in nests:
        if kernels.count(n["kernel"]) > 1:  # one loop: its nests stand together
            n["kernel"] = ""


def lowered(r: random.Random) -> dict[str, Any]:
    """A program in the neutral form."""
    f = ig.Fusion("f")
    x = f.input("x", shape=tuple(r.randint(2, 4) for _ in range(r.choice((1, 1, 2)))))
    chain, nests = [x], list[dict[str, Any]]()
    homes, buffers = {"x": "x"}, dict[str, Any]()
    steps, used = r.randint(1, 3), set[tuple[str, str]]()
    jumps = [r.random() < 0.15 for _ in range(steps)]  # it reads an earlier one
    for k in range(steps):
        of = r.choice(chain) if jumps[k] else chain[-1]
        kind = r.choice(("copy", "copy", "flip", "flip", "stencil", "transpose", "pad", "sum"))
        if (of.name, kind) in used:  # two tensors of the same elements: either may lie where the other should
            kind = "copy"
        used.add((of.name, kind))
        t, reads, reduce = _step(of, kind, [f"i{j}" for j in range(len(of.shape))], r)
        name = t.name = f"a{k}"
        shape = [int(v) for v in t.shape]
        chain.append(t)
        place = r.random()
        last = k == steps - 1
        homes[name] = name
        if place < 0.15 and not last and not jumps[k + 1]:
            homes[name] = f"tmp{k}"
        elif place < 0.55:
            over = r.choice(chain[:-1]).name
            if not homes[over].startswith("tmp"):
                homes[name] = name
                buffers[name] = {"storage": buffers.get(over, {}).get("storage", over)}
                if r.random() < 0.7:
                    buffers[name]["after"] = f"k{k}"
                if r.random() < 0.6:
                    buffers[name]["over"] = over
        source = [int(v) for v in of.shape]
        write: dict[str, Any] = {
            "buffer": homes[name], "index": _address([f"i{j}" for j in range(len(shape))], shape),
            "reads": [{"buffer": homes[of.name], "index": _address(c, source), "when": w} for c, w in reads],
        }  # fmt: skip
        loops = [[f"i{j}", v] for j, v in enumerate(shape)]
        if r.random() < 0.15:
            fault = r.choice((" + 1", " - 1", "*1 + i0"))
            write["reads"][0]["index"] = f"({write['reads'][0]['index']}){fault}"
        nests.append({"name": f"k{k}", "loops": loops, "reduce": reduce, "writes": [write], "kernel": ""})
    _scheduled(nests, r)
    names = [n["name"] for n in nests]
    for k, t in enumerate(chain[1:]):  # what nothing reads since is an output: nobody sees a fault of it else
        later = nests[names.index(f"k{k}") + 1 :]
        live = any(x["buffer"] == homes[t.name] for n in later for w in n["writes"] for x in w["reads"])
        if not live or (homes[t.name] == t.name and r.random() < 0.1):
            f.output(t)
    data = {"version": 1, "program": str(f), "buffers": buffers, "nests": nests}
    if r.random() < 0.05:
        gone = nests.pop(r.randrange(len(nests)))
        for b in buffers.values():
            if b.get("after") == gone["name"]:
                del b["after"]
    return data
