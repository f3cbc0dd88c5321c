"""The table of ATen operations: importing this module registers every handler; here stand those that stay opaque."""

from __future__ import annotations

from idgraph.frontends.aten import gather, movement, pointwise, reduce
from idgraph.frontends.importer import HANDLERS, OPAQUE

__all__ = [
    "EFFECTS",
    "HANDLERS",
    "OPAQUE",
    "gather",
    "movement",
    "pointwise",
    "reduce",
]  # the modules register handlers

_SORTS = "the order of its results depends on values, not on indices"
_WINDOWS = "a sum over overlapping windows: no single source element for each output element"
_RANDOM = "its values are random numbers of torch's generator"
_ATTENTION = "a fused attention kernel; export with the math backend to see its operations"
_CHECK = "a check of values when the program runs"
_SIZE = "the size of its result depends on values"

OPAQUE.update({
    "aten.sort.default": _SORTS, "aten.sort.stable": _SORTS, "aten.topk.default": _SORTS,
    "aten.argsort.default": _SORTS, "aten.argmax.default": _SORTS, "aten.argmin.default": _SORTS,
    "aten.max.dim": _SORTS, "aten.min.dim": _SORTS,
    "aten.convolution.default": _WINDOWS, "aten.convolution_backward.default": _WINDOWS,
    "aten.avg_pool2d.default": _WINDOWS, "aten.avg_pool2d_backward.default": _WINDOWS,
    "aten.max_pool2d_with_indices.default": _WINDOWS, "aten.max_pool2d_with_indices_backward.default": _WINDOWS,
    "prims._low_memory_max_pool_with_offsets.default": _WINDOWS,
    "prims._low_memory_max_pool_offsets_to_indices.default": _WINDOWS,
    "aten.upsample_bilinear2d.vec": "its source coordinates are computed in floating point",
    "aten.rand.default": _RANDOM, "aten.randn.default": _RANDOM, "aten.native_dropout.default": _RANDOM,
    "aten.bernoulli.p": _RANDOM, "aten.randint.low": _RANDOM, "aten.randperm.default": _RANDOM,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _ATTENTION,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _ATTENTION,
    "aten._scaled_dot_product_flash_attention.default": _ATTENTION,
    "aten._scaled_dot_product_efficient_attention.default": _ATTENTION,
    "aten._scaled_dot_product_cudnn_attention.default": _ATTENTION,
    "aten._assert_async.msg": _CHECK, "aten._assert_async.default": _CHECK, "aten._assert_scalar.default": _CHECK,
    "aten.nonzero.default": _SIZE, "aten.masked_select.default": _SIZE, "aten._local_scalar_dense.default": _SIZE,
    "aten._unique2.default": _SIZE,
})  # fmt: skip

# These act although nothing reads them: a check stays where it is, a random number is drawn in its turn.
EFFECTS = frozenset(name for name, reason in OPAQUE.items() if reason in (_CHECK, _RANDOM))
