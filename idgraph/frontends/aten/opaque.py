"""The operations that stay opaque, by reason; whatever stands in no table is opaque too, with a reason of its own.

Handlers of rows of different length: nested tensors of layout jagged, and segment reductions by offsets.

A nested tensor is its values, one row behind the other, and its offsets: what torch.compile shows are operations on
these two. (torch/nested/_internal/ops.py)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from idgraph.arith import Expr, as_expr
from idgraph.frontends.importer import OPAQUE, Call, Unmapped, handles
from idgraph.ir import Tensor
from idgraph.ir import ops_ragged as ragged
from idgraph.ir import ops_reduce as composite
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.dtypes import Scalar
from idgraph.ir.op_builders import same_extent

SORTS = "the order of its results depends on values, not on indices"
WINDOWS = "a sum over overlapping windows: no single source element for each output element"
RANDOM = "its values are random numbers of torch's generator"
ATTENTION = "a fused attention kernel; export with the math backend to see its operations"
CHECK = "a check of values when the program runs"
SIZE = "the size of its result depends on values"
PLACES = "which row an element belongs to depends on sums of other values"
COMPLEX = "complex numbers have no kernels here"
FUNCTION = "a special function that kernels have no formula for"
BITS = "it reads the bytes of its operand as another type"
SOLVES = "linear algebra that is not a sum over indices: a factorisation"
NUMBER = "a number that depends on values"
MEMORY = "it writes through a view that may lie anywhere in its memory"
FILTERS = "the weights of a resampling filter, a number for each pair of positions"

_NAMES: dict[str, str] = {
    SORTS: """sort.default sort.stable topk.default argsort.default kthvalue.default mode.default median.default
        median.dim nanmedian.default nanmedian.dim histc.default _ctc_loss.Tensor _ctc_loss.default""",
    WINDOWS: "convolution.default convolution_backward.default _adaptive_avg_pool3d.default",
    RANDOM: """rand.default randn.default rand_like.default randn_like.default randint.low randint.default
        randint_like.default randint_like.low_dtype randperm.default bernoulli.p bernoulli.default
        native_dropout.default normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor normal.float_float
        normal_functional.default uniform.default exponential.default cauchy.default geometric.default
        log_normal.default fractional_max_pool2d.default multinomial.default poisson.default
        _fused_dropout.default binomial.default random.default""",
    ATTENTION: """_scaled_dot_product_flash_attention_for_cpu.default
        _scaled_dot_product_flash_attention_for_cpu_backward.default _scaled_dot_product_flash_attention.default
        _scaled_dot_product_efficient_attention.default _scaled_dot_product_cudnn_attention.default
        _scaled_dot_product_flash_attention_backward.default _scaled_dot_product_fused_attention_overrideable.default
        _scaled_dot_product_efficient_attention_backward.default""",
    CHECK: "_assert_async.msg _assert_async.default _linalg_check_errors.default",
    SIZE: """nonzero.default nonzero_static.default masked_select.default _unique2.default unique_dim.default
        unique_consecutive.default bincount.default""",
    NUMBER: "equal.default",
    PLACES: "repeat_interleave.Tensor _embedding_bag.default _embedding_bag_forward_only.default",
    COMPLEX: "_fft_r2c.default _fft_c2c.default _fft_c2r.default",
    FUNCTION: """lgamma.default digamma.default polygamma.default erfinv.default erfc.default i0.default
        special_i0e.default special_i1.default special_i1e.default special_erfcx.default special_log_ndtr.default
        special_ndtri.default special_zeta.default igamma.default igammac.default gcd.default lcm.default
        special_bessel_j0.default special_bessel_j1.default""",
    BITS: "view.dtype view_copy.dtype frexp.Tensor nextafter.default",
    SOLVES: """_linalg_det.default _linalg_slogdet.default _linalg_svd.default _linalg_eigh.default linalg_qr.default
        linalg_inv_ex.default linalg_cholesky_ex.default linalg_lu.default linalg_lu_factor_ex.default
        _linalg_solve_ex.default linalg_solve_triangular.default cholesky.default triangular_solve.default
        linalg_eig.default linalg_matrix_exp.default""",
    MEMORY: "as_strided_scatter.default",
    FILTERS: "_upsample_bilinear2d_aa.default _upsample_bicubic2d_aa.default",
}

OPAQUE.update({f"aten.{name}": reason for reason, names in _NAMES.items() for name in names.split()})

# These have side effects: a check stays where it is, a random number is drawn in its turn.
EFFECTS = frozenset(name for name, reason in OPAQUE.items() if reason in (CHECK, RANDOM)) | {
    "aten._assert_scalar.default",
    "aten.rrelu_with_noise_functional.default",
}


_SEGMENTS: Final[Mapping[str, Callable[[Tensor, int], Tensor]]] = {
    "sum": composite.sum, "mean": composite.mean, "max": composite.amax, "min": composite.amin, "prod": composite.prod,
}  # fmt: skip


def _one_offsets(c: Call) -> Tensor:
    offsets = c.tensors(1, "offsets")
    if len(offsets) != 1:
        raise Unmapped(f"{len(offsets)} ragged axes in one tensor")
    return offsets[0]


@handles("aten._jagged_to_padded_dense_forward.default")
def jagged_to_padded(c: Call) -> Tensor:
    """The rows of values side by side, ``padding_value`` behind their ends, cut or grown to ``max_lengths``."""
    x, offsets = c.tensor(0, "values"), _one_offsets(c)
    (length,) = c.sizes(2, "max_lengths")
    fill = c.number(3, "padding_value", 0.0)
    made = ragged.pad_ragged(ragged.partition(x, 0, offsets), fill)
    return _resized(made, length, fill)


@handles("aten._padded_dense_to_jagged_forward.default")
def padded_to_jagged(c: Call) -> Tensor:
    """The values of rows that lie side by side: what stands behind the ends is left out."""
    x, offsets = c.tensor(0, "dense"), _one_offsets(c)
    total = c.size_or_none(2, "total_L")
    if total is None:
        raise Unmapped("the number of values is known only when offsets are loaded")
    return ragged.combine(ragged.crop_ragged(_resized(x, total, 0.0), 0, offsets))


@handles("aten.segment_reduce.default")
def segment_reduce(c: Call) -> Tensor:
    """The sum, mean, maximum, minimum or product of each segment, which ``offsets`` name."""
    x, how, offsets = c.tensor(0, "data"), c.text(1, "reduce", ""), c.tensor_or_none(4, "offsets")
    if offsets is None or offsets.ndim != 1:
        raise Unmapped("segments by lengths or indices")
    if c.get(7, "initial", None) is not None:
        raise Unmapped("an initial value of each segment")
    if c.int(5, "axis", 0) % x.ndim or how not in _SEGMENTS:
        raise Unmapped("segments of another axis than the first")
    return _SEGMENTS[how](ragged.partition(x, 0, offsets), 1)


def _resized(x: Tensor, length: int | Expr, fill: Scalar) -> Tensor:
    """Axis 1 cut, or grown by ``fill``, to ``length`` elements."""
    wanted, n = as_expr(length), x.axes[1].extent
    if same_extent(n, wanted):
        return x
    return movement.pad(x, [*[0, 0] * (x.ndim - 2), 0, attr(wanted - n)], value=fill)
