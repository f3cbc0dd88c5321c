"""Fusions whose threads take neighbours side by side: columns reduced together, pictures, tables in sections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import idgraph as ig
from idgraph.ir import DType


def _scheduled(build: Callable[[ig.Fusion], ig.Tensor]) -> ig.Fusion:
    f = ig.Fusion("side")
    f.output(build(f))
    ig.schedule.auto(f)
    return f


def columns(count: int, rows: int, dtype: DType = "float32", form: Callable[..., ig.Tensor] = ig.sum) -> ig.Fusion:
    """A reduction over the leading axis."""

    def build(f: ig.Fusion) -> ig.Tensor:
        x = f.input("x", shape=(count, rows), dtype=dtype)
        return ig.cast(form(ig.cast(x, "float32"), 0), dtype)

    return _scheduled(build)


def two_sums(count: int, rows: int) -> ig.Fusion:
    """Gradients of a norm's weight and bias."""
    f = ig.Fusion("side")
    x, g = (f.input(n, shape=(count, rows), dtype="bfloat16") for n in ("x", "g"))
    mean = f.input("mean", shape=(count, 1))
    wide = ig.cast(g, "float32")
    f.output(ig.sum(wide * (ig.cast(x, "float32") - mean), 0))
    f.output(ig.sum(wide, 0))
    ig.schedule.auto(f)
    return f


def bags(count: int, columns: int) -> ig.Fusion:
    """Rows of a table, weighted and summed."""

    def build(f: ig.Fusion) -> ig.Tensor:
        ids = f.input("ids", shape=(count, columns), dtype="int64")
        table = f.input("table", shape=(500, 32))
        return ig.sum(ig.embedding(ids, table) * ig.unsqueeze(f.input("w", shape=(count, columns)), 2), 1)

    return _scheduled(build)


def two_tables(width: int) -> ig.Fusion:
    """Rows of two tables, added and normalised."""

    def build(f: ig.Fusion) -> ig.Tensor:
        ids, at = (f.input(n, shape=(3, 5), dtype="int64") for n in ("ids", "at"))
        words, places = f.input("words", shape=(500, width)), f.input("places", shape=(500, width))
        x = ig.embedding(ids, words) + ig.embedding(at, places)
        apart = x - ig.mean(x, 2, keepdim=True)
        return apart * ig.rsqrt(ig.mean(ig.square(apart), 2, keepdim=True) + 1e-5)

    return _scheduled(build)


def to_bytes(size: int) -> ig.Fusion:
    """Channels of a picture next to each other, as bytes."""

    def build(f: ig.Fusion) -> ig.Tensor:
        x, scale = f.input("x", shape=(2, 3, size, size)), f.input("scale", shape=(3,))
        y = ig.minimum(ig.maximum(ig.round(x * ig.unsqueeze(scale, (0, 2, 3)) * 255.0), 0.0), 255.0)
        return ig.copy(ig.permute(ig.cast(y, "uint8"), 0, 2, 3, 1))

    return _scheduled(build)


def from_bytes(size: int) -> ig.Fusion:
    """Bytes of a picture's channels as numbers."""

    def build(f: ig.Fusion) -> ig.Tensor:
        x, mean = f.input("x", shape=(2, size, size, 3), dtype="uint8"), f.input("mean", shape=(3,))
        return ig.cast(x, "float32") / 255.0 - mean

    return _scheduled(build)


def sections(width: int, cuts: tuple[int, ...]) -> ig.Fusion:
    """A product with a table whose columns come from three others in turn."""

    def build(f: ig.Fusion) -> ig.Tensor:
        x, table = f.input("x", shape=(4, 16, width)), f.input("table", shape=(3, 1, 16, width))
        parts = [table[k % 3][..., a:b] for k, (a, b) in enumerate(pairwise(cuts))]
        return x * ig.cat(parts, dim=-1)

    return _scheduled(build)


def reflected(width: int, pad: int) -> ig.Fusion:
    """Rows with mirrored ends."""

    def build(f: ig.Fusion) -> ig.Tensor:
        x = f.input("x", shape=(7, width))
        place = f.iota(width + 2 * pad, dtype="int64") - pad
        near = ig.maximum(ig.minimum(place, (2 * width - 2) - place), -place)
        return ig.index_select(x, 1, ig.minimum(ig.maximum(near, 0), width - 1))

    return _scheduled(build)


def rows_to_bytes(width: int) -> ig.Fusion:
    """Rows as bytes, each by its largest value: floats that are clamped become integers."""
    f = ig.Fusion("side")
    x = f.input("x", shape=(5, width))
    scale = ig.maximum(ig.amax(ig.abs(x), 1, keepdim=True) / 127.0, 1e-8)
    f.output(ig.cast(ig.minimum(ig.maximum(ig.round(x / scale), -127.0), 127.0), "int8"))
    f.output(scale)
    ig.schedule.auto(f)
    return f


def distances(size: int) -> ig.Fusion:
    """Softmax of scores that fall with the distance of positions: small integers become floats."""

    def build(f: ig.Fusion) -> ig.Tensor:
        x, slope = f.input("x", shape=(2, size, size)), f.input("slope", shape=(2, 1, 1))
        at = f.iota(size, dtype="int64")
        apart = ig.cast(ig.unsqueeze(at, 0) - ig.unsqueeze(at, 1), "float32")
        return ig.softmax(x + slope * apart, 2)

    return _scheduled(build)


SIDE: Mapping[str, Callable[[], ig.Fusion]] = {
    "columns": lambda: columns(300, 64),
    "columns_bf16": lambda: columns(300, 72, "bfloat16"),
    "columns_odd": lambda: columns(90, 77),
    "columns_largest": lambda: columns(129, 64, form=ig.amax),
    "columns_product": lambda: columns(40, 64, form=ig.prod),
    "columns_many": lambda: columns(2100, 64),
    "columns_two": lambda: two_sums(700, 48),
    "bags": lambda: bags(64, 12),
    "bags_prime": lambda: bags(33, 13),
    "two_tables": lambda: two_tables(320),
    "grey": lambda: _scheduled(_grey),
    "to_bytes": lambda: to_bytes(16),
    "to_bytes_odd": lambda: to_bytes(15),
    "from_bytes": lambda: from_bytes(16),
    "sections": lambda: sections(64, (0, 8, 20, 32, 40, 52, 64)),
    "sections_odd": lambda: sections(63, (0, 7, 20, 63)),
    "rows_to_bytes": lambda: rows_to_bytes(96),
    "distances": lambda: distances(64),
    "reflected": lambda: reflected(40, 9),
}


def _grey(f: ig.Fusion) -> ig.Tensor:
    x, w = f.input("x", shape=(1025, 1024, 3), dtype="uint8"), f.input("w", shape=(3,))
    return ig.sum(ig.cast(x, "float32") * w, 2) / 255.0
