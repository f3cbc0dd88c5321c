"""Functions of the classes table at small sizes: how many kernels, and every address and value."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.ir.clone import clone_fusion
from tools.programs.class_cases import CASES, ClassCase

SMALL = {
    "layer_norm_two": ("6x96 bf16", "6x96 bf16", "96 bf16", "96 bf16"),
    "rms_norm_two": ("5x72 bf16", "5x72 bf16", "72 bf16"),
    "group_norm": ("2x64x8x8 bf16", "64 bf16", "64 bf16"),
    "group_norm_silu": ("2x32x6x6 bf16", "32 bf16", "32 bf16"),
    "instance_norm": ("3x5x6x7 f32",),
    "position_ids": ("7x130 i64:2",),
    "cumprod_middle": ("3x70x40 f32:+",),
    "product_of_rows": ("40 i64:30", "40 i64:20", "30x32 f32", "20x32 f32"),
    "bert_embedding": ("3x16 i64:30", "3x16 i64:2", "30x48 f32", "16x48 f32", "2x48 f32", "48 f32", "48 f32"),
    "table_rms": ("9 i64:30", "30x64 bf16", "64 bf16"),
    "unpack_halves": ("4x64 u8", "4x2 bf16"),
    "to_channels": ("2x8x8x3 u8", "3 f32", "3 f32:+"),
    "to_bytes": ("2x3x8x8 f32", "3 f32", "3 f32"),
    "reflect": ("2x3x8x8 f32",),
    "replicate": ("2x3x8x8 f32",),
    "reflect_sound": ("2x1x500 f32",),
    "picture_rope": ("1x2x4x4x64 f32", "4x32 f32", "4x32 f32"),
    "put_along": ("16x64 f32", "16x1 i64:64", "16x1 f32"),
}


def case(key: str) -> ClassCase:
    return next(c for c in CASES if c.key == key)


@pytest.mark.sampled
@pytest.mark.parametrize("key", SMALL)
def test_one_kernel_and_right(key: str) -> None:
    c = case(key)
    args = ClassCase(key, c.kind, SMALL[key], c.fn).arguments("cpu")
    (segment,) = ig.from_torch(c.fn, args).segments
    assert segment.fusion is not None
    f = clone_fusion(segment.fusion)
    ig.schedule.auto(f)
    kernels = ig.emit(f, "cuda").kernels
    assert len(kernels) == 1
    assert any(way.startswith("threadIdx") for way in kernels[0].launch)
    report = ig.validate(f, target="numpy")
    assert report.ok, str(report)
