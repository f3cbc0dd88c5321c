"""Programs whose index math is checked as TorchInductor generates it: functions of torch, and captured graphs."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from idgraph.arith import Expr
from idgraph.frontends.graph import EnumConstant, Ref, TensorMeta
from idgraph.frontends.graph_json import read_program
from idgraph.frontends.opaque_ops import operation

F: Any = torch.nn.functional
T: Any = torch
Made = tuple[Callable[..., Any], tuple[Any, ...]]


def _half(x: Any) -> Any:
    d = x.shape[-1] // 2
    return T.cat((-x[..., d:], x[..., :d]), -1)


def _pairs(x: Any) -> Any:
    return T.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def _rope(turn: Callable[[Any], Any], residual: bool = False) -> Callable[..., Any]:
    def rope(q: Any, k: Any, cos: Any, sin: Any) -> Any:
        a, b = q * cos + turn(q) * sin, k * cos + turn(k) * sin
        return (a + q, b + k) if residual else (a, b)

    return rope


def _partial(q: Any, cos: Any, sin: Any) -> Any:
    d = cos.shape[-1]
    rot, rest = q[..., :d], q[..., d:]
    return T.cat((rot * cos + _half(rot) * sin, rest), -1)


def _complex(q: Any, angles: Any) -> Any:
    a, b = q[..., ::2], q[..., 1::2]
    c, s = angles.cos(), angles.sin()
    return T.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)


def _mrope(q: Any, cos: Any, sin: Any) -> Any:
    parts = [2, 3, 3] * 2
    c = T.cat([m[k % 3] for k, m in enumerate(cos.split(parts, -1))], -1)
    s = T.cat([m[k % 3] for k, m in enumerate(sin.split(parts, -1))], -1)
    return q * c + _half(q) * s


def _qkv(x: Any, w: Any) -> Any:
    q, k, v = (x @ w).split([64, 32, 32], -1)
    q, k, v = q.view(2, 16, 4, 16).transpose(1, 2), k.view(2, 16, 2, 16).transpose(1, 2), v.view(2, 16, 2, 16)
    return (q + _half(q)) * 2, k.repeat_interleave(2, 1) + 1, v.transpose(1, 2) * 3


def _swin(x: Any) -> Any:
    b, h, w, c = x.shape
    x = T.roll(x, (-3, -3), (1, 2)).view(b, h // 7, 7, w // 7, 7, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, c) * 2


def _unswin(x: Any) -> Any:
    x = x.view(2, 2, 2, 7, 7, 6).permute(0, 1, 3, 2, 4, 5).reshape(2, 14, 14, 6)
    return T.roll(x, (3, 3), (1, 2)) + 1


def _kv(cache: Any, new: Any) -> Any:
    cache[:, :, 3:5] = new
    return cache * 2


def _loss(x: Any, t: Any) -> Any:
    return F.cross_entropy(x[:, :-1].reshape(-1, x.shape[-1]), t[:, 1:].reshape(-1))


def programs(device: str) -> Mapping[str, Made]:
    """Name -> function and arguments, on ``device``."""

    def f(*shape: int, grad: bool = True) -> Any:
        return T.randn(*shape, device=device, requires_grad=grad)

    def n(high: int, *shape: int) -> Any:
        return T.randint(0, high, shape, device=device)

    return {**_models(f, n), **_moves(f, n)}


def _models(f: Callable[..., Any], n: Callable[..., Any]) -> dict[str, Made]:
    """The parts that models are made of; ``f`` makes numbers, ``n`` indices."""
    table = f(16, 16, grad=False)
    return {
        "rope half": (_rope(_half), (f(2, 4, 16, 16), f(2, 2, 16, 16), table, table)),
        "rope half residual": (_rope(_half, True), (f(2, 4, 16, 16), f(2, 2, 16, 16), table, table)),
        "rope interleaved": (_rope(_pairs), (f(2, 4, 16, 16), f(2, 2, 16, 16), table, table)),
        "rope transposed": (
            lambda q, c, s: q.transpose(1, 2) * c + _half(q.transpose(1, 2)) * s, (f(2, 16, 4, 16), table, table),
        ),
        "rope partial": (_partial, (f(2, 4, 16, 24), table, table)),
        "rope complex": (_complex, (f(2, 4, 16, 16), f(16, 8, grad=False))),
        "rope multimodal": (_mrope, (f(1, 4, 12, 16), f(3, 1, 1, 12, 16, grad=False), f(3, 1, 1, 12, 16, grad=False))),
        "qkv": (_qkv, (f(2, 16, 64), f(64, 128))),
        "swin": (_swin, (f(2, 14, 14, 6),)),
        "swin back": (_unswin, (f(8, 49, 6),)),
        "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2) + 1, (f(2, 8, 6, 5),)),
        "pixel unshuffle": (lambda x: F.pixel_unshuffle(x, 3) * 2, (f(2, 3, 9, 6),)),
        "cross entropy": (F.cross_entropy, (f(32, 67), n(67, 32))),
        "cross entropy wide": (F.cross_entropy, (f(16, 5003), n(5003, 16))),
        "cross entropy shifted": (_loss, (f(2, 17, 67), n(67, 2, 17))),
        "softmax": (lambda x: x.softmax(-1), (f(64, 300),)),
        "layer norm": (lambda x, w, b: F.layer_norm(x, (48,), w, b), (f(6, 7, 48), f(48), f(48))),
        "embedding": (lambda w, i: F.embedding(i, w, padding_idx=0) * 2, (f(50, 12), n(50, 3, 7))),
        "gather": (lambda x, i: T.gather(x, 1, i) + 1, (f(5, 9), n(9, 5, 4))),
        "take along": (lambda x, i: T.take_along_dim(x * 2, i, 0), (f(7, 5), n(7, 3, 5))),
        "index": (lambda x, i: x[i, :, i] * 2, (f(6, 4, 6), n(6, 5))),
        "index add": (lambda x, i, s: T.index_add(x * 2, 0, i, s), (f(9, 4), n(9, 6), f(6, 4))),
        "scatter add": (lambda x, i, s: x.scatter_add(1, i, s) * 2, (f(4, 9), n(9, 4, 6), f(4, 6))),
    }  # fmt: skip


def _moves(f: Callable[..., Any], n: Callable[..., Any]) -> dict[str, Made]:
    """Operations that move, join and reduce elements."""
    return {
        "cat": (lambda a, b: T.cat((a * 2, b.flip(1)), 1).relu(), (f(4, 5), f(4, 7))),
        "cat of many": (lambda a: T.cat([a * k for k in range(6)], 0) + 1, (f(3, 8),)),
        "cat transposed": (lambda a, b: T.cat((a, b.t()), 0).t() * 2, (f(4, 6), f(6, 5))),
        "transpose": (lambda a, b: (a.t() + b).contiguous() * 2, (f(64, 96), f(96, 64))),
        "transpose batched": (lambda a: a.permute(0, 2, 1).contiguous().exp(), (f(3, 40, 24),)),
        "two orders": (lambda a: (a.exp(), a.t().contiguous().sin()), (f(48, 64),)),
        "sum both ways": (lambda a: (a.sum(0), a.sum(1), a.sum()), (f(72, 40),)),
        "sum of a large one": (lambda a: (a * a).sum(), (f(70_001),)),
        "mean of columns": (lambda a: (a - a.mean(0)).abs().mean(0), (f(501, 3),)),
        "channels last": (
            lambda x: F.pad(x, (1, 2, 0, 1)).amax(1), (f(2, 3, 5, 4, grad=False).to(memory_format=T.channels_last),),
        ),
        "pad reflect": (lambda x: F.pad(x, (3, 2, 1, 4), "reflect") * 2, (f(1, 2, 6, 7),)),
        "pad circular": (lambda x: F.pad(x, (2, 1), "circular") + 1, (f(2, 3, 5),)),
        "roll": (lambda x: T.roll(x, 5) + T.roll(x, (1, -2), (0, 1)), (f(6, 7),)),
        "strided": (lambda x: x[::2, 1::3].flip(0) * 2, (f(9, 13),)),
        "repeat": (lambda x: x.repeat(2, 3) + x.tile(2, 3).flip(1), (f(4, 5),)),
        "unfold": (lambda x: x.unfold(1, 4, 2) * 2, (f(3, 12),)),
        "misaligned reshape": (lambda x: x.reshape(15, 8).t().reshape(10, 12) + 1, (f(12, 10),)),
        "kv cache": (_kv, (f(2, 3, 8, 4, grad=False), f(2, 3, 2, 4, grad=False))),
        "cumsum": (lambda x: x.cumsum(1) * 2, (f(4, 9, grad=False),)),
        "argmax": (lambda x: x.argmax(1) + 1, (f(4, 9, grad=False),)),
        "max pool": (lambda x: F.max_pool2d(x, 3, 2, 1), (f(2, 3, 9, 8, grad=False),)),
        "upsample": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest") + 1, (f(2, 3, 4, 5),)),
        "one hot": (lambda t: F.one_hot(t, 11).float() * 2, (n(11, 3, 4),)),
        "tril": (lambda x: x.tril(1).softmax(-1), (f(6, 6),)),
    }  # fmt: skip


# captured graphs ------------------------------------------------------------------------------------------------------


def captured(path: Path) -> tuple[Any, list[Any]]:
    """A captured graph as a GraphModule, with fake inputs of its sizes: no memory is taken."""
    program = read_program(path)
    graph: Any = T.fx.Graph()
    env: dict[str, Any] = {}
    inputs: list[Any] = []
    mode: Any = FakeTensorMode(allow_non_fake_inputs=True)
    for n in program.nodes:
        if n.kind != "call":
            env[n.name] = graph.placeholder(n.name)
            env[n.name].meta["val"] = _fake(mode, n.meta)
            inputs.append(env[n.name].meta["val"])
            continue
        target = operator.getitem if n.target == "_operator.getitem" else operation(n)
        args = tuple(_operand(a, env) for a in n.args)
        kwargs = {k: _operand(v, env) for k, v in n.kwargs.items()}
        made = env[n.name] = graph.create_node("call_function", target, args, kwargs, name=n.name)
        with mode:
            given = T.fx.node.map_arg((args, kwargs), lambda x: x.meta["val"])
            made.meta["val"] = target(*given[0], **given[1])
    graph.output(tuple(_operand(r, env) for r in program.results))
    return T.fx.GraphModule(T.nn.Module(), graph), inputs


def _fake(mode: Any, meta: object) -> Any:
    if not isinstance(meta, TensorMeta):
        return meta
    shape, strides = [int(n) for n in meta.shape], [int(s) for s in meta.strides]
    with mode:
        return T.empty_strided(shape, strides, dtype=getattr(T, meta.dtype))


def _operand(value: Any, env: Mapping[str, Any]) -> Any:
    match value:
        case Ref(name):
            return env[name]
        case tuple():
            return [_operand(v, env) for v in value]
        case EnumConstant(kind, text):
            return T.device("cpu") if kind == "device" else getattr(T, text)
        case slice():
            return slice(*(_operand(v, env) for v in (value.start, value.stop, value.step)))
        case Expr():
            raise ValueError("a captured graph of dynamic sizes")
        case _:
            return value
