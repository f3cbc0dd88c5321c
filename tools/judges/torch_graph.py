"""A captured graph run by torch, node by node: the judge of the importer, sharing no code with it."""

from __future__ import annotations

import importlib
import json
import math
import operator
from pathlib import Path
from typing import Any, cast

import torch

importlib.import_module("torch._inductor.inductor_prims")  # registers prims.fma and its like
_FLOATS = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
# A number of one of these is the same number, moved: an index stays an index.
_MOVES = {
    "alias", "cat", "clone", "expand", "permute", "slice", "squeeze", "unsqueeze", "view", "where", "select", "add",
    "_to_copy", "convert_element_type", "clamp_max", "clamp_min", "fmod", "remainder",
}  # fmt: skip

# These give their operands bit by bit, at other places.
_EXACT = _MOVES - {"add", "_to_copy", "convert_element_type", "clamp_max", "clamp_min", "fmod", "remainder"} | {
    "getitem", "split", "split_with_sizes", "unbind", "flip", "rev", "roll", "repeat", "copy", "slice_scatter",
    "constant_pad_nd", "gather", "index", "index_select", "_unsafe_index", "embedding", "full", "scalar_tensor",
}  # fmt: skip


def load(path: str | Path) -> dict[str, Any]:
    """The JSON of a captured graph."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def convert(value: Any, values: dict[str, Any]) -> Any:
    """An argument as torch takes it."""
    if isinstance(value, list):
        return [convert(v, values) for v in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = cast("dict[str, Any]", value).items()
    match tag:
        case "ref":
            return values[content]
        case "float":
            return _FLOATS[content]
        case "slice":
            return slice(*content)
        case "device":
            return torch.device("cpu")
        case _:
            return getattr(torch, str(content).removeprefix("torch."))


def interpret(graph: dict[str, Any], inputs: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """The results of a graph for its placeholders' values, in order."""
    values: dict[str, Any] = {}
    given = iter(inputs)
    last = {r: k for k, node in enumerate(graph["nodes"]) for r in refs([node["args"], *node["kwargs"].values()])}
    for k, node in enumerate(graph["nodes"]):
        if node["op"] == "output":
            return convert(node["args"][0], values)
        values[node["name"]] = next(given) if node["op"] == "placeholder" else call(node, values)
        for r in refs([node["args"], *node["kwargs"].values()]):
            if last[r] == k:
                values.pop(r, None)
    raise ValueError("the graph has no output")


def call(node: dict[str, Any], values: dict[str, Any]) -> Any:
    """The result of one call by torch."""
    args = [convert(a, values) for a in node["args"]]
    kwargs = {k: convert(v, values) for k, v in node["kwargs"].items()}
    if node["target"] == "_operator.getitem":
        return operator.getitem(*args)
    space, name, overload = node["target"].split(".")
    return getattr(getattr(getattr(torch.ops, space), name), overload)(*args, **kwargs)


def refs(value: Any) -> list[str]:
    """The nodes that an argument reads."""
    if isinstance(value, list):
        return [r for v in cast("list[Any]", value) for r in refs(v)]
    return [value["ref"]] if isinstance(value, dict) and "ref" in value else []


def index_bounds(graph: dict[str, Any]) -> dict[str, int]:
    """For each integer placeholder the smallest axis it indexes, found by following moves to gathers and scatters."""
    nodes = {n["name"]: n for n in graph["nodes"]}
    sources: dict[str, set[str]] = {}
    bounds: dict[str, int] = {}

    def note(value: Any, extent: int) -> None:
        for r in refs(value):
            for s in sources.get(r, ()):
                bounds[s] = min(bounds.get(s, extent), extent)

    for name, n in nodes.items():
        if n["op"] == "placeholder":
            sources[name] = {name} if isinstance(n["out"], dict) and n["out"]["dtype"].startswith("int") else set()
            continue
        if n["op"] != "call_function":
            continue
        op, args = n["target"].split(".")[1], n["args"]
        if op in _MOVES:
            sources[name] = {s for r in refs(args) for s in sources.get(r, ())}
        elif op in ("gather", "index", "index_select"):
            sources[name] = {s for r in refs(args[:1]) for s in sources.get(r, ())}
        first: Any = nodes[args[0]["ref"]]["out"] if args and isinstance(args[0], dict) and "ref" in args[0] else {}
        shape: list[int] = first["shape"] if "shape" in (first or {}) else []
        if op in ("gather", "scatter", "scatter_add") or op == "index_select":
            note(args[2], shape[int(args[1])])
        elif op == "embedding":
            note(args[1], shape[0])
        elif op in ("index", "index_put", "_unsafe_index"):
            for k, extent in enumerate(shape[: len(args[1])]):
                note(args[1][k], extent)
        elif op.startswith("_unsafe_masked_index"):
            for k, extent in enumerate(shape[: len(args[2])]):
                note(args[2][k], extent)
    return bounds


def random_inputs(graph: dict[str, Any], seed: int) -> list[torch.Tensor]:
    """Random values for the placeholders, with the strides captured; integers are valid indices."""
    generator = torch.Generator().manual_seed(seed)
    bounds = index_bounds(graph)
    made: list[torch.Tensor] = []
    for node in graph["nodes"]:
        if node["op"] != "placeholder":
            continue
        out = node["out"]
        dtype, shape = getattr(torch, out["dtype"]), out["shape"]
        memory_shape = [1 if s == 0 else n for n, s in zip(shape, out["stride"], strict=True)]
        if dtype.is_floating_point:
            values = _normal(memory_shape, generator).to(dtype)
        elif dtype == torch.int8:
            values = torch.full(memory_shape, 4, dtype=dtype)  # an offset in a 3x3 window: its centre is not padding
        else:
            top = 2 if dtype == torch.bool else bounds.get(node["name"], 7)
            values = torch.randint(0, max(top, 1), memory_shape, generator=generator).to(dtype)
        wide = values.expand(shape)
        held = torch.empty_strided(memory_shape, out["stride"], dtype=dtype).copy_(values).expand(shape)
        made.append(held if held.stride() == tuple(out["stride"]) else wide)
    return made


_BLOCK = 10_000_019  # a prime: no axis repeats with it


def _normal(shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """Normal values; of a large tensor the first ten million, again and again."""
    count = math.prod(shape)
    if count <= _BLOCK:
        return torch.randn(shape, generator=generator)
    block = torch.randn(_BLOCK, generator=generator)
    return block.repeat(-(-count // _BLOCK))[:count].view(shape)


def coarsest(graph: dict[str, Any]) -> float:
    """The accuracy of a graph's floats: a float32 that was computed of bfloat16 has no better one."""
    found = {n["out"]["dtype"] for n in graph["nodes"] if isinstance(n.get("out"), dict)}
    return max([a for name, a in (("bfloat16", 2e-2), ("float16", 4e-3)) if name in found], default=0.0)


def moved(graph: dict[str, Any]) -> set[str]:
    """The nodes whose floats are those of placeholders, moved: no sum rounds them, so nothing may differ."""
    found: set[str] = set()
    for n in graph["nodes"]:
        if n["op"] == "output":
            continue
        floats = isinstance(n["out"], dict) and n["out"]["dtype"].startswith(("float", "bfloat"))
        plain = n["op"] != "call_function" or n["target"].split(".")[1] in _EXACT
        if (plain or not floats) and found.issuperset(refs([n["args"], *n["kwargs"].values()])):
            found.add(n["name"])
    return found


def in_float64(graph: dict[str, Any], inputs: list[torch.Tensor]) -> list[torch.Tensor | None] | None:
    """The results of a graph of float32 computed in float64; None where that is another program: two-byte floats are
    rounded on purpose, and random numbers are drawn anew."""
    names = {str(n["target"]).split(".")[min(1, str(n["target"]).count("."))] for n in graph["nodes"]}
    if coarsest(graph) or names & {"rand", "randn", "rand_like", "randn_like", "native_dropout", "bernoulli"}:
        return None
    wide = [x.double() if x.dtype == torch.float32 else x for x in inputs]
    return interpret(
        {"nodes": [n | {"args": _wide(n["args"]), "kwargs": _wide(n["kwargs"])} for n in graph["nodes"]]}, wide
    )


def _wide(value: Any) -> Any:
    if isinstance(value, list):
        return [_wide(v) for v in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    return {
        k: "float64" if k == "dtype" and v == "float32" else _wide(v) for k, v in cast("dict[str, Any]", value).items()
    }


MORE = 2.0  # times eager's own error against float64


def noise(found: torch.Tensor, wanted: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether ``found`` differs from eager's ``wanted`` only as float32 sums in another order do: its largest error
    against float64 is at most `MORE` times eager's, and eager's at most a thousandth of the largest value."""
    if wanted.dtype != torch.float32 or exact.dtype != torch.float64 or not bool(torch.isfinite(exact).all()):
        return False
    own, eagers = (float((t.double() - exact).abs().max()) for t in (found, wanted))
    return own <= MORE * eagers and eagers <= 1e-3 * float(exact.abs().max())


def difference(found: torch.Tensor, wanted: torch.Tensor, least: float = 0.0, *, exactly: bool = False) -> str:
    """Empty where equal: integers, and all where ``exactly``, bit by bit but for the sign of 0; floats to the accuracy
    of their type (or ``least``). Else what differs."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{tuple(found.shape)} is not {wanted.dtype}{tuple(wanted.shape)}"
    if not wanted.dtype.is_floating_point:
        return "" if torch.equal(found, wanted) else f"{int((found != wanted).sum())} of {wanted.numel()} differ"
    if exactly:
        other = ~((found == wanted) | (found.isnan() & wanted.isnan()))
        return f"{int(other.sum())} of {wanted.numel()} moved elements differ" if bool(other.any()) else ""
    if found.numel() > _BLOCK:
        flat = found.reshape(-1), wanted.reshape(-1)
        blocks = (slice(k, k + _BLOCK) for k in range(0, wanted.numel(), _BLOCK))
        return next(
            (f"from element {s.start}: {d}" for s in blocks if (d := difference(flat[0][s], flat[1][s], least))), ""
        )
    a, b = found.double(), wanted.double()
    accuracy = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float64: 1e-9}.get(wanted.dtype, 1e-4)
    accuracy = max(accuracy, least)
    if wanted.numel() and not bool(torch.isfinite(b).any()):
        return "no value is finite: nothing was compared"
    finite = b[torch.isfinite(b)].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    near = torch.isclose(a, b, rtol=4 * accuracy, atol=accuracy * scale, equal_nan=True)
    if bool(near.all()):
        return ""
    worst = (a - b).abs().nan_to_num(float("inf")).max()
    return f"{int((~near).sum())} of {near.numel()} differ, by up to {float(worst):.3g} (values to {scale:.3g})"
