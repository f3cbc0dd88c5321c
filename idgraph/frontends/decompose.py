"""Which decompositions a captured program goes through: torch's core ones, and more where that makes operations known.

An operation that has a handler of its own here is kept: a window of strided slices says more than a gather by numbers.
"""

from __future__ import annotations

from typing import Any

from idgraph.frontends.arrays import load_torch

# Core decompositions that would hide how elements move.
KEPT = frozenset(
    f"aten.{name}"
    for name in (
        "im2col.default", "col2im.default",
        "upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec",
        "upsample_nearest1d.default", "upsample_nearest2d.default", "upsample_nearest3d.default",
        "_upsample_nearest_exact1d.vec", "_upsample_nearest_exact2d.vec", "_upsample_nearest_exact3d.vec",
        "_upsample_nearest_exact1d.default", "_upsample_nearest_exact2d.default", "_upsample_nearest_exact3d.default",
        "reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default",
        "replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default",
        "addmm.default", "addbmm.default", "roll.default",
    )
)  # fmt: skip

# Decompositions of torch's that export leaves out, into operations that have handlers.
ADDED = (
    "_adaptive_avg_pool2d", "_addmm_activation", "_batch_norm_no_update", "_batch_norm_with_update",
    "_batch_norm_with_update_functional", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
    "batch_norm_backward", "dist", "elu", "empty_strided",
    "grid_sampler_2d", "hardtanh", "ldexp", "narrow_copy", "native_batch_norm", "round", "tril_indices", "triu_indices",
    "upsample_bicubic2d", "upsample_bilinear2d", "upsample_trilinear3d",
)  # fmt: skip


def table(base: Any) -> dict[Any, Any]:
    """``base`` (operation -> its decomposition) without `KEPT`, with `ADDED`."""
    torch: Any = load_torch("which decompositions are read from")
    found = {op: f for op, f in dict(base).items() if str(op) not in KEPT}
    for op, f in torch._decomp.decomposition_table.items():
        _, _, rest = str(op).partition(".")
        name, _, overload = rest.partition(".")
        plain = name in ADDED and not overload.endswith("out")
        if plain and str(op) != "aten.round.default" and isinstance(op, torch._ops.OpOverload):
            found.setdefault(op, f)
    return found
