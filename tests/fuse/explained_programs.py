"""Explanations of programs that nobody had tried, judged: ``python -m tests.fuse.explained_programs [--match TEXT]``,
which ``--json FILE`` writes.

Functions of torch, as models have them, are imported; each pair of operations that does not share a kernel must have
one of the causes, and an alignment or the proof that none exists. Each alignment is taken on a copy of the two
operations: its program must launch fewer kernels (as many where others need the first one's result too), have the
oracle's values, and move as many bytes less as was reported. The recompute factor is compared with a count of reads by
the oracle, of which `ig.fuse` knows nothing.

Long: one function a program.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import idgraph as ig
from idgraph.errors import IdGraphError
from idgraph.fuse import CAUSES, Obstacle
from idgraph.ir import SCATTERS, LoadedCoordinate, Tensor, TensorExpr
from idgraph.ir.parser import copy_fusion
from idgraph.validate.oracle import evaluate, reads
from idgraph.validate.value_check import random_inputs

torch: Any = import_module("torch")
F: Any = torch.nn.functional
T = Any
Program = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]


def group_norm(x: T, w: T, b: T) -> T:
    n, c, h, k = x.shape
    g = x.reshape(n, 4, c // 4, h, k)
    m = g.mean((2, 3, 4), keepdim=True)
    v = (g - m).square().mean((2, 3, 4), keepdim=True)
    return ((g - m) * torch.rsqrt(v + 1e-5)).reshape(n, c, h, k) * w[:, None, None] + b[:, None, None]


def instance_norm_relu(x: T) -> T:
    m = x.mean((2, 3), keepdim=True)
    return torch.relu((x - m) / (x.var((2, 3), keepdim=True, unbiased=False) + 1e-5).sqrt())


def layer_norm_channels_first(x: T, w: T) -> T:
    m = x.mean(1, keepdim=True)
    return (x - m) * torch.rsqrt((x - m).pow(2).mean(1, keepdim=True) + 1e-6) * w[:, None, None]


def response_norm(x: T) -> T:
    g = x.pow(2).sum((1, 2), keepdim=True).sqrt()
    return x * (g / (g.mean(-1, keepdim=True) + 1e-6)) + x


def qk_norm_rope(q: T, cos: T, sin: T) -> T:
    y = q * torch.rsqrt(q.pow(2).mean(-1, keepdim=True) + 1e-6)
    a, b = y.chunk(2, -1)
    return y * cos + torch.cat([-b, a], -1) * sin


def rope_pairs(q: T, cos: T, sin: T) -> T:
    a, b = q[..., 0::2], q[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def heads_apart(x: T, b: T) -> tuple[T, T, T]:
    y = (x + b).reshape(2, 12, 3, 4, 8).permute(2, 0, 3, 1, 4)
    return y[0] * 0.35, y[1].transpose(-1, -2) * 1.0, y[2] + 0.0


def heads_together(x: T, g: T) -> T:
    return x.transpose(1, 2).reshape(2, 12, 32) * torch.sigmoid(g)


def alibi(s: T, slopes: T) -> T:
    i = torch.arange(12)
    return torch.softmax(s - slopes[:, None, None] * (i[:, None] - i[None, :]).abs(), -1)


def relative_table(s: T, table: T) -> T:
    i = torch.arange(12)
    return s + table[:, (i[:, None] - i[None, :]) + 11]


def causal_scores(s: T) -> T:
    i = torch.arange(12)
    return torch.softmax(torch.where(i[None, :] <= i[:, None], s * 0.25, -1e9), -1)


def sink_softmax(s: T, sink: T) -> T:
    return torch.softmax(torch.cat([s, sink[None, :, None, None].expand(2, 4, 12, 1)], -1), -1)[..., :-1]


def window_partition(x: T) -> T:
    y = torch.nn.functional.pad(x, (0, 0, 0, 2, 0, 2))
    return y.reshape(2, 4, 4, 4, 4, 6).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 6) * 1.5


def window_reverse(x: T, r: T) -> T:
    y = x.reshape(2, 4, 4, 4, 4, 6).permute(0, 1, 3, 2, 4, 5).reshape(2, 16, 16, 6)
    return torch.roll(y, (2, 2), (1, 2)) + r


def patch_merging(x: T, w: T) -> T:
    y = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
    return (y - y.mean(-1, keepdim=True)) * w


def space_to_depth(x: T) -> T:
    return F.pixel_unshuffle(x * 2.0, 2) + 1.0


def halo(x: T) -> T:
    return torch.cat([x[:, -1:], x, x[:, :1]], 1)[:, 2:] - x


def token_shift(x: T, m: T) -> tuple[T, T]:
    y = F.pad(x, (0, 0, 1, -1))
    return x * m + y * (1 - m), x - y


def average_windows(x: T) -> T:
    return F.avg_pool2d(torch.exp(x), 2) * 3.0


def pool_pyramid(x: T) -> tuple[T, T]:
    y = torch.tanh(x)
    a = y.reshape(2, 4, 8, 2, 8, 2).mean((3, 5))
    return a, a.reshape(2, 4, 4, 2, 4, 2).amax((3, 5))


def squeeze_excite(x: T, w: T) -> T:
    return x * torch.sigmoid(x.mean((2, 3)) * w)[:, :, None, None]


def adaptive_layer(x: T, s: T) -> T:
    a, b, g = s.chunk(3, -1)
    m = x.mean(-1, keepdim=True)
    y = (x - m) * torch.rsqrt((x - m).square().mean(-1, keepdim=True) + 1e-6)
    return x + g[:, None] * (y * (1 + a[:, None]) + b[:, None])


def gated_halves(x: T) -> T:
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


def maxout(x: T) -> T:
    return x.reshape(12, 8, 4).amax(-1) - x[:, :8]


def expert_weights(s: T) -> T:
    p = torch.softmax(s, -1)
    top = p.amax(-1, keepdim=True)
    return torch.where(p >= top, p, 0.0) / top


def expert_slots(i: T) -> T:
    hot = (i[:, None] == torch.arange(6)).to(torch.int64)
    return (torch.cumsum(hot, 0) - 1) * hot


def expert_gather(x: T, i: T, w: T) -> T:
    return (x * w)[i] + 1.0


def expert_scatter(x: T, i: T, w: T) -> T:
    return torch.zeros(16, 8).index_add(0, i, x * w)


def put_cache(c: T, at: T, x: T) -> T:
    return c.index_put((at,), x * 2.0) * 0.5


def take_along(x: T, i: T) -> T:
    return torch.log_softmax(x, -1).gather(-1, i[:, None])[:, 0]


def positions(ids: T, table: T, at: T) -> T:
    y = table[ids] + at[: ids.shape[1]]
    return y - y.mean(-1, keepdim=True)


def sinusoid(x: T) -> T:
    i = torch.arange(12)[:, None] * torch.exp(torch.arange(0, 8, 2) * -0.5)
    return x + torch.stack([torch.sin(i), torch.cos(i)], -1).reshape(12, 8)


def running_mean(x: T) -> T:
    return torch.cumsum(x * x, 1) / torch.arange(1, 13)[:, None]


def decayed_scan(x: T, a: T) -> T:
    y = torch.cumsum(torch.log(a.abs() + 1), 1)
    return torch.exp(y - y[:, -1:]) * x


def differences(x: T) -> tuple[T, T]:
    d = x[:, 1:] - x[:, :-1]
    return d, d[:, 1:] - d[:, :-1]


def reflect_blur(x: T) -> T:
    y = F.pad(x, (1, 1, 1, 1), mode="reflect")
    return (y[..., :-2, 1:-1] + y[..., 2:, 1:-1] + y[..., 1:-1, :-2] + y[..., 1:-1, 2:]) * 0.25


def total_variation(x: T) -> T:
    return (x[:, :, 1:] - x[:, :, :-1]).abs().sum() + (x[:, :, :, 1:] - x[:, :, :, :-1]).abs().sum()


def cosine_rows(a: T, b: T) -> T:
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1) + 1e-8)


def pairwise(a: T, b: T) -> T:
    return (a[:, None] - b[None]).square().sum(-1)


def contrastive(s: T) -> T:
    return -(torch.log_softmax(s, 1).diagonal() + torch.log_softmax(s, 0).diagonal()).mean()


def batch_moments(x: T) -> tuple[T, T]:
    m = x.mean((0, 2, 3))
    return (x - m[:, None, None]) * 2.0, x.var((0, 2, 3), unbiased=False)


def upsample_add(x: T, y: T) -> T:
    return x[:, :, :, None, :, None].expand(2, 4, 8, 2, 8, 2).reshape(2, 4, 16, 16) + y


def bidirectional(x: T) -> T:
    return torch.cat([torch.cumsum(x, 1), torch.cumsum(x.flip(1), 1).flip(1)], -1)


def shuffled_channels(x: T, w: T) -> T:
    return x.reshape(2, 4, 4, 6, 6).transpose(1, 2).reshape(2, 16, 6, 6) * w[:, None, None] + x


def moe_balance(s: T) -> T:
    p = torch.softmax(s, -1)
    return (p.mean(0) * (p > 0.2).float().mean(0)).sum() * 6


def outer_rows(x: T) -> tuple[T, T]:
    return x[:, :, None] * x[:, None, :], x.sum(1)


def rand(*shape: int) -> Any:
    return torch.rand(*shape)


def below(n: int, *shape: int) -> Any:
    return torch.randint(0, n, shape)


PROGRAMS: tuple[Program, ...] = (
    (group_norm, lambda: (rand(2, 16, 6, 6), rand(16), rand(16))),
    (instance_norm_relu, lambda: (rand(2, 4, 8, 8),)),
    (layer_norm_channels_first, lambda: (rand(2, 16, 6, 6), rand(16))),
    (response_norm, lambda: (rand(2, 6, 6, 8),)),
    (qk_norm_rope, lambda: (rand(2, 4, 12, 8), rand(12, 8), rand(12, 8))),
    (rope_pairs, lambda: (rand(2, 4, 12, 8), rand(12, 4), rand(12, 4))),
    (heads_apart, lambda: (rand(2, 12, 96), rand(96))),
    (heads_together, lambda: (rand(2, 4, 12, 8), rand(2, 12, 32))),
    (alibi, lambda: (rand(2, 4, 12, 12), rand(4))),
    (relative_table, lambda: (rand(2, 4, 12, 12), rand(4, 23))),
    (causal_scores, lambda: (rand(2, 4, 12, 12),)),
    (sink_softmax, lambda: (rand(2, 4, 12, 12), rand(4))),
    (window_partition, lambda: (rand(2, 14, 14, 6),)),
    (window_reverse, lambda: (rand(32, 16, 6), rand(2, 16, 16, 6))),
    (patch_merging, lambda: (rand(2, 8, 8, 6), rand(24))),
    (space_to_depth, lambda: (rand(2, 4, 8, 8),)),
    (halo, lambda: (rand(4, 12, 6),)),
    (token_shift, lambda: (rand(2, 12, 8), rand(8))),
    (average_windows, lambda: (rand(2, 4, 8, 8),)),
    (pool_pyramid, lambda: (rand(2, 4, 16, 16),)),
    (squeeze_excite, lambda: (rand(2, 4, 8, 8), rand(4))),
    (adaptive_layer, lambda: (rand(2, 12, 8), rand(2, 24))),
    (gated_halves, lambda: (rand(12, 16),)),
    (maxout, lambda: (rand(12, 32),)),
    (expert_weights, lambda: (rand(16, 6),)),
    (expert_slots, lambda: (below(6, 16),)),
    (expert_gather, lambda: (rand(16, 8), below(16, 24), rand(16, 1))),
    (expert_scatter, lambda: (rand(24, 8), below(16, 24), rand(24, 1))),
    (put_cache, lambda: (rand(32, 8), below(32, 6), rand(6, 8))),
    (take_along, lambda: (rand(16, 10), below(10, 16))),
    (positions, lambda: (below(20, 2, 12), rand(20, 8), rand(16, 8))),
    (sinusoid, lambda: (rand(2, 12, 8),)),
    (running_mean, lambda: (rand(2, 12, 8),)),
    (decayed_scan, lambda: (rand(2, 12, 8), rand(2, 12, 8))),
    (differences, lambda: (rand(4, 16),)),
    (reflect_blur, lambda: (rand(2, 4, 8, 8),)),
    (total_variation, lambda: (rand(2, 4, 8, 8),)),
    (cosine_rows, lambda: (rand(16, 8), rand(16, 8))),
    (pairwise, lambda: (rand(6, 8), rand(10, 8))),
    (contrastive, lambda: (rand(12, 12),)),
    (batch_moments, lambda: (rand(2, 4, 8, 8),)),
    (upsample_add, lambda: (rand(2, 4, 8, 8), rand(2, 4, 16, 16))),
    (bidirectional, lambda: (rand(2, 12, 8),)),
    (shuffled_channels, lambda: (rand(2, 16, 6, 6), rand(16))),
    (moe_balance, lambda: (rand(16, 6),)),
    (outer_rows, lambda: (rand(6, 8),)),
)


def moved(f: ig.Fusion) -> int:
    """Bytes of the distinct elements that each kernel of the fusion reads and writes, as `ig.cost` counts them."""
    total = ig.cost(ig.emit(f, target="cuda")).total
    return total.bytes_read + total.bytes_written


def reads_of_each(o: Obstacle) -> float | None:
    """How often the reader ``o.b`` reads an element that ``o.a`` makes, by the elements that there are, counted by what
    the oracle says of each operation on the way; None where a loaded index says it.
    """
    f = o.question.fusion
    made = f[o.question.a]
    weight: dict[Tensor, Any] = {}
    for e in reversed(f.exprs):
        t = e.output
        if t is f[o.question.b]:
            weight[t] = weight.get(t, 0) + np.ones([int(d.extent) for d in t.logical if d.kind != "reduction"])
        if t is made or t not in weight:
            continue
        for k, x in enumerate(e.inputs):
            if not _lies_behind(made, x):
                continue
            if any(isinstance(r, LoadedCoordinate) for row in e.reads for r in row) or e.op in SCATTERS:
                return None
            at = reads(e, k)
            points = np.broadcast_to(_spread(e, weight[t]), at.shape)
            read = at >= 0
            counts = np.bincount(at[read].ravel(), points[read].ravel(), _count(x))
            weight[x] = weight.get(x, 0) + counts.reshape(x.shape)
    return float(np.sum(weight[made])) / max(1, _count(made)) if made in weight else None


def _count(t: Tensor) -> int:
    """Elements of a tensor, of known size."""
    return prod(int(d.extent) for d in t.axes)


def _spread(e: TensorExpr, weight: Any) -> Any:
    """Weights of an operation's results at each of its points, those that it reduces too."""
    return weight[tuple(None if d.kind == "reduction" else slice(None) for d in e.output.logical)]


def _lies_behind(made: Tensor, x: Tensor) -> bool:
    return x is made or (x.definition is not None and any(_lies_behind(made, y) for y in x.definition.inputs))


def judged(o: Obstacle) -> dict[str, Any]:
    """The pair, its outcome, and what was found wrong with what is reported of it."""
    row: dict[str, Any] = {"a": o.a.output.name, "b": o.b.output.name, "cause": o.cause, "wrong": []}
    wrong: list[str] = row["wrong"]
    if o.cause not in CAUSES:
        wrong.append("no cause")
    if o.alignment is None:
        row["outcome"] = "proved that none" if o.proof else "none found"
        row["tried"] = list(o.tried)
        return row
    row["outcome"] = "aligned" if o.alignment.one_kernel else "one nest, kernels apart"
    apart, together = copy_fusion(o.question.fusion), copy_fusion(o.question.fusion)
    o.alignment.apply(together)
    kernels = [len(ig.emit(f, target="cuda").kernels) for f in (apart, together)]
    kept = o.question.a in o.question.shared  # others need it: where its reader has a copy, its own kernel stays
    if o.alignment.one_kernel and kernels[1] >= kernels[0] + kept:
        wrong.append(f"{kernels[0]} kernels before, {kernels[1]} after")
    given = random_inputs(apart)
    expected = evaluate(apart, given)
    found = ig.emit(together, target="numpy").run(given)
    for t in apart.outputs:
        if not np.allclose(found[t.name], expected[t.name], 1e-4, 1e-5, equal_nan=True):
            wrong.append(f"other values of {t.name}")
    if o.alignment.one_kernel:
        row |= {"reported": o.bytes_saved, "counted": moved(apart) - moved(together)}
        if row["reported"] != row["counted"]:
            wrong.append(f"reported {row['reported']} bytes, counted {row['counted']}")
    factor = reads_of_each(o) if o.accesses[0].is_write and not o.a.is_reduction else None
    if factor is not None and abs(max(1.0, factor) - o.recompute_factor) > 1e-9:
        wrong.append(f"reported a factor of {o.recompute_factor}, counted {factor}")
    return row


def pairs_of(program: Program) -> list[dict[str, Any]]:
    """Each pair of a program, forward, judged."""
    f, given = program
    torch.manual_seed(0)
    try:
        fusion = ig.from_torch(f, given()).fusion
        return [judged(o) | {"program": f.__name__} for o in ig.fuse.obstacles(fusion)]
    except IdGraphError as error:
        return [{"program": f.__name__, "cause": "error", "outcome": "error", "wrong": [error.what]}]
    except Exception as error:  # a raw exception is what is looked for
        return [{"program": f.__name__, "cause": "error", "outcome": "raw exception", "wrong": [repr(error)]}]


def main() -> int:
    """The counts by cause and outcome on the terminal, with each pair that is wrong; 1 where there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    start = time.process_time()
    rows: list[dict[str, Any]] = []
    for program in PROGRAMS:
        if args.match in program[0].__name__:
            rows += pairs_of(program)
            mine = [r for r in rows if r["program"] == program[0].__name__]
            bad = [r for r in mine if r["wrong"]]
            print(f"{program[0].__name__:<28} {len(mine):>4} pairs, {len(bad)} wrong", flush=True)
            for r in mine:
                if r["wrong"] or r["outcome"] == "none found":
                    said = (r.get("a"), r.get("b"), r["cause"], r["outcome"], *r["wrong"], *r.get("tried", ()))
                    print("   ", *said, sep="; ")
    by = Counter(f"{r['cause']}: {r['outcome']}" for r in rows)
    for what, n in sorted(by.items()):
        print(f"{n:>6}  {what}")
    wrong = sum(bool(r["wrong"]) for r in rows)
    print(f"{len(rows)} pairs, {wrong} wrong, {time.process_time() - start:.0f} s")
    if args.json:
        table = {"programs": len(PROGRAMS), "pairs": len(rows), "wrong": wrong, "outcomes": dict(sorted(by.items()))}
        Path(args.json).write_text(json.dumps({**table, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
