"""Each handler against eager torch, through graphs of the raw ATen operation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from idgraph.errors import FrontendError
from idgraph.frontends import from_torch
from idgraph.frontends.aten import HANDLERS, OPAQUE
from tools.bench.corpus import with_oracle

aten: Any = torch.ops.aten
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
P = X.abs() + 0.5
CUBE = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(2))
WIDE = torch.randn(2, 4, 3, 5, generator=torch.Generator().manual_seed(3))
N = torch.tensor([[5, -3, 0, 7], [1, 2, -8, 4], [9, -1, 6, 3]])
M = torch.tensor([[2, 3, 1, -2], [3, -1, 2, 5], [4, 2, -5, 1]])
B = X > 0
ROWS = torch.tensor([2, 0, 2, 1, 1])
SIGNED = torch.tensor([-1, 0, 2, -3])
PLACE = torch.tensor([[0, 3, 1], [2, 2, 0], [3, 1, 1]])
FLAT = torch.tensor(2.5)
FLAT_INT = torch.tensor(3)
HALF = X.to(torch.bfloat16)
IOTA = {"start": -1, "step": 2, "dtype": torch.int64, "device": "cpu", "requires_grad": False}
KERNEL = torch.ones(5, 3, 1, 1)
CONVOLUTION = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)

CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "add.Tensor alpha": (aten.add.Tensor, (X, Y), {"alpha": 2.5}),
    "add.Tensor bool": (aten.add.Tensor, (B, Y > 0), {}),
    "add.Tensor of two types": (aten.add.Tensor, (X, N), {}),
    "add.Tensor flat float": (aten.add.Tensor, (HALF, FLAT), {}),
    "add.Tensor flat float on ints": (aten.add.Tensor, (N, FLAT), {}),
    "add.Tensor flat int": (aten.add.Tensor, (X, FLAT_INT), {}),
    "add.Tensor both flat": (aten.add.Tensor, (FLAT, FLAT_INT), {}),
    "add.Scalar": (aten.add.Scalar, (N, 2.5), {}),
    "sub alpha": (aten.sub.Tensor, (X, Y), {"alpha": 3}),
    "rsub": (aten.rsub.Scalar, (X, 3), {"alpha": 2}),
    "mul bool": (aten.mul.Tensor, (B, Y > 0), {}),
    "mul bool float": (aten.mul.Tensor, (B, Y), {}),
    "mul int by float": (aten.mul.Tensor, (N, 0.5), {}),
    "div ints": (aten.div.Tensor, (N, M), {}),
    "div floor": (aten.div.Tensor_mode, (X, Y), {"rounding_mode": "floor"}),
    "div floor ints": (aten.div.Tensor_mode, (N, M), {"rounding_mode": "floor"}),
    "div trunc": (aten.div.Tensor_mode, (X, Y), {"rounding_mode": "trunc"}),
    "floor_divide": (aten.floor_divide.default, (N, M), {}),
    "remainder ints": (aten.remainder.Tensor, (N, M), {}),
    "remainder floats": (aten.remainder.Tensor, (X, Y), {}),
    "remainder scalar": (aten.remainder.Scalar, (N, 4), {}),
    "fmod ints": (aten.fmod.Tensor, (N, M), {}),
    "fmod scalar": (aten.fmod.Scalar, (X, 0.7), {}),
    "pow 2": (aten.pow.Tensor_Scalar, (X, 2), {}),
    "pow 3 ints": (aten.pow.Tensor_Scalar, (N, 3), {}),
    "pow 0.5": (aten.pow.Tensor_Scalar, (P, 0.5), {}),
    "pow 3": (aten.pow.Tensor_Scalar, (X, 3.0), {}),
    "pow 3 bf16": (aten.pow.Tensor_Scalar, (X.bfloat16(), 3.0), {}),
    "pow -1 half": (aten.pow.Tensor_Scalar, (P.half(), -1), {}),
    "pow -2": (aten.pow.Tensor_Scalar, (P, -2.0), {}),
    "pow 2.0 ints": (aten.pow.Tensor_Scalar, (N, 2.0), {}),
    "pow tensor": (aten.pow.Tensor_Tensor, (P, Y), {}),
    "pow scalar base": (aten.pow.Scalar, (2.0, Y), {}),
    "bitwise_and ints": (aten.bitwise_and.Tensor, (N, M), {}),
    "bitwise_or bool": (aten.bitwise_or.Tensor, (B, Y > 0), {}),
    "bitwise_xor scalar": (aten.bitwise_xor.Scalar, (N, 5), {}),
    "bitwise_not": (aten.bitwise_not.default, (N,), {}),
    "logical_xor": (aten.logical_xor.default, (X, B), {}),
    "maximum": (aten.maximum.default, (X, Y), {}),
    "atan2": (aten.atan2.default, (X, Y), {}),
    "eq of types": (aten.eq.Tensor, (N, FLAT), {}),
    "le scalar": (aten.le.Scalar, (X, 0.1), {}),
    "fma": (aten.addcmul.default, (X, Y, P), {"value": 0.5}),
    "where": (aten.where.self, (B, X, Y), {}),
    "where flat": (aten.where.self, (B, HALF, torch.tensor(0.0)), {}),
    "where ints flat float": (aten.where.self, (B, N, torch.tensor(0.5)), {}),
    "where broadcasts": (aten.where.self, (B[:, :1], X, Y[0]), {}),
    "masked_fill": (aten.masked_fill.Scalar, (X, B, -1.0), {}),
    "masked_fill int": (aten.masked_fill.Scalar, (X, B, 3), {}),
    "masked_fill tensor": (aten.masked_fill.Tensor, (HALF, B, FLAT), {}),
    "clamp": (aten.clamp.default, (X, -0.5, 0.5), {}),
    "clamp min only": (aten.clamp.default, (N, 2), {}),
    "clamp max only": (aten.clamp.default, (X, None, 0.2), {}),
    "clamp float on ints": (aten.clamp.default, (N, 0.5, None), {}),
    "clamp_min": (aten.clamp_min.default, (X, 0.1), {}),
    "clamp tensors": (aten.clamp.Tensor, (X, Y, P), {}),
    "to_copy": (aten._to_copy.default, (X * 3,), {"dtype": torch.int32}),
    "to_copy bool": (aten._to_copy.default, (N,), {"dtype": torch.bool}),
    "convert": (torch.ops.prims.convert_element_type.default, (X, torch.float64), {}),
    "gelu": (aten.gelu.default, (X,), {}),
    "gelu tanh": (aten.gelu.default, (X,), {"approximate": "tanh"}),
    "silu": (aten.silu.default, (HALF,), {}),
    "leaky_relu": (aten.leaky_relu.default, (X, 0.2), {}),
    "reshape": (aten.reshape.default, (CUBE, [4, -1]), {}),
    "t": (aten.t.default, (X,), {}),
    "t of one axis": (aten.t.default, (X[0],), {}),
    "transpose": (aten.transpose.int, (CUBE, -1, 0), {}),
    "squeeze": (aten.squeeze.default, (CUBE[:1, :, :1],), {}),
    "squeeze dim of another extent": (aten.squeeze.dim, (CUBE, 1), {}),
    "squeeze flat": (aten.squeeze.dim, (FLAT, 0), {}),
    "expand": (aten.expand.default, (X[:, None], [2, 3, 5, 4]), {}),
    "expand keeps": (aten.expand.default, (X[:, None], [-1, 5, -1]), {}),
    "slice step": (aten.slice.Tensor, (X, 1, -3, 9, 2), {}),
    "slice empty": (aten.slice.Tensor, (X, 1, 3, 1), {}),
    "slice_scatter step": (aten.slice_scatter.default, (X, Y[:, :2], 1, 0, 4, 2), {}),
    "slice_scatter type": (aten.slice_scatter.default, (X, N[:, :2], 1, -2), {}),
    "select_scatter": (aten.select_scatter.default, (X, Y[0], 0, -1), {}),
    "select": (aten.select.int, (CUBE, -2, -1), {}),
    "cat of types": (aten.cat.default, ([X, N], 1), {}),
    "cat with nothing": (aten.cat.default, ([torch.zeros(0), X], 0), {}),
    "stack": (aten.stack.default, ([X, Y], -1), {}),
    "pad": (aten.constant_pad_nd.default, (X, [1, -2, 0, 3], 1.5), {}),
    "pad default": (aten.constant_pad_nd.default, (N, [2, 1]), {}),
    "flip": (aten.flip.default, (CUBE, [0, -1]), {}),
    "roll": (aten.roll.default, (CUBE, [5, -1], [2, 0]), {}),
    "roll flat": (aten.roll.default, (X, [3]), {}),
    "repeat": (aten.repeat.default, (X, [2, 1, 3]), {}),
    "split": (aten.split.Tensor, (X, 3, 1), {}),
    "split sizes": (aten.split_with_sizes.default, (X, [1, 0, 3], -1), {}),
    "unbind": (aten.unbind.int, (CUBE, 1), {}),
    "copy": (aten.copy.default, (X, N[0]), {}),
    "full": (aten.full.default, ([2, 3], 7), {}),
    "full float": (aten.full.default, ([2, 3], 7), {"dtype": torch.float16}),
    "full inf": (aten.full.default, ([], float("-inf")), {}),
    "full_like": (aten.full_like.default, (N, 3), {"dtype": torch.float32}),
    "zeros_like": (aten.zeros_like.default, (N,), {}),
    "ones": (aten.ones.default, ([2],), {"dtype": torch.bool}),
    "new_full": (aten.new_full.default, (HALF, [2], 0.5), {}),
    "scalar_tensor": (aten.scalar_tensor.default, (3,), {"dtype": torch.int64}),
    "arange": (aten.arange.default, (5,), {}),
    "arange back": (aten.arange.start_step, (7, -2, -3), {}),
    "arange float": (aten.arange.start_step, (0, 5, 2), {"dtype": torch.float32}),
    "arange whole floats": (aten.arange.start, (1.0, 4.0), {}),
    "iota": (torch.ops.prims.iota.default, (4,), IOTA),
    "cumsum": (aten.cumsum.default, (X, 1), {}),
    "cumsum ints": (aten.cumsum.default, (B, 0), {}),
    "cumsum dtype": (aten.cumsum.default, (N, -1), {"dtype": torch.float32}),
    "sum": (aten.sum.default, (N,), {}),
    "sum dims": (aten.sum.dim_IntList, (CUBE, [0, -1], True), {}),
    "sum no dims": (aten.sum.dim_IntList, (CUBE, []), {}),
    "sum bool": (aten.sum.dim_IntList, (B, [1]), {}),
    "sum dtype": (aten.sum.dim_IntList, (HALF, [1]), {"dtype": torch.float32}),
    "sum flat": (aten.sum.dim_IntList, (FLAT, [-1]), {}),
    "mean": (aten.mean.dim, (CUBE, [0, 2]), {}),
    "mean half": (aten.mean.default, (HALF,), {}),
    "amax": (aten.amax.default, (CUBE, [1], True), {}),
    "amin all": (aten.amin.default, (X,), {}),
    "max": (aten.max.default, (N,), {}),
    "any": (aten.any.dim, (N, 1), {}),
    "any dims": (aten.any.dims, (B,), {}),
    "any flat": (aten.any.default, (FLAT,), {}),
    "all": (aten.all.dim, (B, 0, True), {}),
    "prod": (aten.prod.dim_int, (X, 1), {}),
    "var": (aten.var.correction, (X, [1]), {}),
    "var_mean": (aten.var_mean.correction, (CUBE, [0, 2]), {"correction": 0, "keepdim": True}),
    "softmax": (aten._softmax.default, (CUBE, 1, False), {}),
    "softmax half": (aten._softmax.default, (HALF, -1, False), {}),
    "log_softmax": (aten._log_softmax.default, (CUBE, 0, False), {}),
    "softmax backward": (aten._softmax_backward_data.default, (X, P, 1, torch.float32), {}),
    "log_softmax backward": (aten._log_softmax_backward_data.default, (X, Y, 1, torch.float32), {}),
    "logsumexp": (aten.logsumexp.default, (CUBE, [0, 2]), {}),
    "layer_norm": (aten.native_layer_norm.default, (CUBE, [3, 4], X, Y, 1e-5), {}),
    "layer_norm plain": (aten.native_layer_norm.default, (CUBE, [4], None, None, 1e-5), {}),
    "layer_norm of bfloat16": (aten.native_layer_norm.default, (HALF, [4], None, None, 1e-5), {}),
    "group_norm of bfloat16": (aten.native_group_norm.default, (WIDE.bfloat16(), None, None, 2, 4, 15, 2, 1e-5), {}),
    "group_norm": (aten.native_group_norm.default, (WIDE, X[0], Y[0], 2, 4, 15, 2, 1e-5), {}),
    "group_norm plain": (aten.native_group_norm.default, (WIDE, None, None, 2, 4, 15, 4, 1e-5), {}),
    "flip of one number": (aten.flip.default, (X[0, 0], [-1]), {}),
    "unfold": (aten.unfold.default, (CUBE, -1, 2, 1), {}),
    "unfold with gaps": (aten.unfold.default, (WIDE, 3, 2, 3), {}),
    "nearest": (aten.upsample_nearest2d.vec, (WIDE, [6, 15], None), {}),
    "nearest by factors": (aten.upsample_nearest2d.vec, (WIDE, None, [2.0, 3.0]), {}),
    "mm": (aten.mm.default, (X, Y.T), {}),
    "bmm": (aten.bmm.default, (CUBE, CUBE.transpose(1, 2)), {}),
    "addmm": (aten.addmm.default, (Y[:, :3], X, Y.T), {"beta": 0.5, "alpha": 2}),
    "addmm row": (aten.addmm.default, (Y[0, :3], X, Y.T), {}),
    "baddbmm": (aten.baddbmm.default, (CUBE[:, :, :3], CUBE, CUBE.transpose(1, 2)), {"beta": 0}),
    "mv": (aten.mv.default, (X, Y[0]), {}),
    "dot": (aten.dot.default, (X[0], Y[0]), {}),
    "gather": (aten.gather.default, (X, 1, PLACE), {}),
    "gather small": (aten.gather.default, (X, 0, PLACE[:2, :2] % 3), {}),
    "index_select": (aten.index_select.default, (X, 0, ROWS), {}),
    "embedding": (aten.embedding.default, (X, PLACE % 3, 1), {}),
    "index rows": (aten.index.Tensor, (X, [ROWS]), {}),
    "index negative": (aten.index.Tensor, (CUBE, [None, None, SIGNED]), {}),
    "index pair": (aten.index.Tensor, (CUBE, [None, SIGNED[:, None] % 3, SIGNED]), {}),
    "index apart": (aten.index.Tensor, (CUBE, [ROWS % 2, None, ROWS]), {}),
    "index_put": (aten.index_put.default, (X, [ROWS[:2]], Y[:2]), {}),
    "index_put add": (aten.index_put.default, (X, [ROWS], Y[[0, 1, 2, 0, 1]], True), {}),
    "index_put negative": (aten.index_put.default, (X, [None, SIGNED[:3]], Y[:, :3]), {}),
    "index_put pair add": (aten.index_put.default, (CUBE, [None, PLACE % 3, PLACE], CUBE[:, :, :3], True), {}),
    "index_put apart": (aten.index_put.default, (CUBE, [ROWS % 2, None, ROWS], X[[0, 1, 2, 0, 1], :3], True), {}),
    "index_put broadcasts": (aten.index_put.default, (CUBE, [None, ROWS], X[0, 0], True), {}),
    "scatter value": (aten.scatter.value, (X, 1, PLACE, 9.0), {}),
    "scatter src": (aten.scatter.src, (X, 0, PLACE[:1] % 3, Y), {}),
    "scatter_add": (aten.scatter_add.default, (X, 1, PLACE, Y), {}),
    "max with places": (aten.max.dim, (X, 1), {}),
    "min with places, NaN": (aten.min.dim, (X / (X > -0.4), 0, True), {}),
    "max of bool": (aten.max.dim, (B, 1), {}),
    "argmax": (aten.argmax.default, (N % 3, 1), {}),
    "argmin of all, kept": (aten.argmin.default, (X, None, True), {}),
    "arange of fractions": (aten.arange.start_step, (0, 2, 0.3), {}),
    "trunc division of ints": (aten.div.Tensor_mode, (N, M), {"rounding_mode": "trunc"}),
    "nearest by fractions": (aten.upsample_nearest2d.vec, (WIDE, None, [2.05, 2.25]), {}),
    "nearest, smaller": (aten.upsample_nearest2d.vec, (WIDE, [2, 2], None), {}),
    "nearest exact": (aten._upsample_nearest_exact2d.vec, (WIDE, [2, 7], None), {}),
    "nearest by halves": (aten.upsample_nearest1d.vec, (CUBE, None, [0.5]), {}),
    "product of ints": (aten.mm.default, (N, M.T), {}),
    "addbmm": (aten.addbmm.default, (X[:, :3], CUBE, CUBE.mT.contiguous()), {"beta": 0.5, "alpha": 2}),
    "addmv of ints by fractions": (aten.addmv.default, (N[:, 0], M, N[0]), {"beta": 1.0, "alpha": -2.5}),
    "addmm of ints by 0.5": (aten.addmm.default, (N[:, :3], N, M.T), {"beta": 3.0, "alpha": 0.5}),
    "addcmul of ints by 2.5": (aten.addcmul.default, (N, M, N), {"value": 2.5}),
    "pad of ints by 2.5": (aten.constant_pad_nd.default, (N, [1, 2], 2.5), {}),
    "scatter of ints by -2.5": (aten.scatter.value, (N, 1, PLACE, -2.5), {}),
    "pad of bools by 2.5": (aten.constant_pad_nd.default, (B, [1, 2], 2.5), {}),
    "addmv": (aten.addmv.default, (X[:, 0], Y, X[0]), {"beta": 0.5}),
    "diagonal_scatter": (aten.diagonal_scatter.default, (CUBE, CUBE[:, 0, :3], 1, 1, 2), {}),
    "diagonal_scatter below": (aten.diagonal_scatter.default, (CUBE, CUBE[0, :, :2], -1, 2, 0), {}),
    "norm 3": (aten.linalg_vector_norm.default, (X, 3, [0], True), {}),
    "norm inf": (aten.linalg_vector_norm.default, (X, float("-inf")), {}),
    "norm 0": (aten.linalg_vector_norm.default, (N.float(), 0, [1]), {}),
    "cdist 1": (aten._cdist_forward.default, (X, Y, 1.0, None), {}),
    "cdist inf": (aten._cdist_forward.default, (CUBE, CUBE, float("inf"), None), {}),
    "bucketize": (aten.bucketize.Tensor, (N.float(), torch.tensor([-1.0, 3.0, 6.0])), {"right": True}),
    "searchsorted": (aten.searchsorted.Tensor, (torch.sort(X)[0], Y), {"out_int32": True}),
    "masked_scatter": (aten.masked_scatter.default, (X, B[:1], Y), {}),
    "masked_scatter of a row": (aten.masked_scatter.default, (X[0], B, Y), {}),
    "put": (aten.put.default, (X, SIGNED, P[0], True), {}),
    "im2col": (aten.im2col.default, (WIDE, [2, 3], [1, 2], [1, 0], [2, 1]), {}),
    "col2im": (aten.col2im.default, (CUBE.reshape(1, 4, 6), [3, 4], [2, 2], [1, 1], [0, 0], [1, 1]), {}),
    "col2im wide": (aten.col2im.default, (CUBE.reshape(4, 6), [4, 5], [2, 2], [2, 1], [1, 1], [2, 2]), {}),
    "avg_pool2d": (aten.avg_pool2d.default, (WIDE, [2, 3], [1, 2], [1, 1], False, False), {}),
    "avg_pool3d": (aten.avg_pool3d.default, (WIDE, [2, 2, 2], [1], [1], False, True, 5), {}),
    "max_pool2d": (aten.max_pool2d_with_indices.default, (WIDE, [3, 2], [2, 1], [1, 1]), {}),
    "max_pool2d spread": (aten.max_pool2d_with_indices.default, (WIDE.round(), [2], [1], [0], [2, 3]), {}),
    "reflection_pad": (aten.reflection_pad2d.default, (WIDE, [2, 0, 1, 2]), {}),
    "replication_pad": (aten.replication_pad1d.default, (CUBE, [2, 3]), {}),
    "replication_pad cuts": (aten.replication_pad1d.default, (CUBE, [-1, 2]), {}),
    "channel shuffle": (aten.native_channel_shuffle.default, (WIDE, 2), {}),
    "shift left": (aten.bitwise_left_shift.Tensor, (N, M), {}),
    "shift right": (aten.bitwise_right_shift.Tensor, (N * 1000, M.abs() * 7), {}),
    "shift int32": (aten.__lshift__.Scalar, (N.to(torch.int32), 30), {}),
    "shift of bytes left": (aten.__lshift__.Scalar, (N.to(torch.uint8), 3), {}),
    "shift of bytes right": (aten.__rshift__.Scalar, (N.to(torch.uint8), 3), {}),
    "shift of bytes by any": (aten.bitwise_left_shift.Tensor, (N.to(torch.uint8), M.abs().to(torch.uint8) * 3), {}),
    "fake quantize": (aten.fake_quantize_per_tensor_affine_cachemask.default, (X * 9, 0.1, 3, -64, 63), {}),
    "rrelu without noise": (aten.rrelu_with_noise_functional.default, (X, Y, 0.1, 0.3), {}),
    "copysign": (aten.copysign.Tensor, (X, torch.tensor([0.0, -0.0, 2.0, -3.0])), {}),
    "signbit": (aten.signbit.default, (torch.tensor([0.0, -0.0, 2.0, -3.0]),), {}),
    "fmax": (aten.fmax.default, (X / (X > 0), Y), {}),
    "hypot": (aten.hypot.default, (X * 1e30, Y * 1e30), {}),
    "log10 of powers": (aten.log10.default, (torch.tensor([1e-3, 1.0, 10.0, 1e3, 1e5]),), {}),
    "trilinear": (aten._trilinear.default, (X, P, Y, [], [], [], [1]), {}),
}  # fmt: skip
UNARY = [
    "neg", "abs", "relu", "sign", "floor", "ceil", "round", "trunc", "exp", "exp2", "expm1", "sin", "cos", "tan",
    "tanh", "sigmoid", "erf", "logical_not", "isnan", "isinf", "alias", "clone", "detach",
]  # fmt: skip
POSITIVE = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"]
DOMAINS = {
    "asin": X.tanh(), "acos": X.tanh(), "atanh": X.tanh(), "atan": X * 5, "acosh": P + 0.5, "asinh": X * 1e3,
    "sinh": X * 4, "cosh": X * 4,
}  # fmt: skip


def check(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], opaque: bool = False) -> None:
    def tensors_in(value: Any) -> list[torch.Tensor]:
        if isinstance(value, list):
            return [t for v in cast("list[Any]", value) for t in tensors_in(v)]
        return [value] if isinstance(value, torch.Tensor) else []

    tensors = tensors_in(list(args))

    def program(*given: torch.Tensor) -> Any:
        numbers = iter(given)

        def put(value: Any) -> Any:
            if isinstance(value, list):
                return [put(v) for v in cast("list[Any]", value)]
            return next(numbers) if isinstance(value, torch.Tensor) else value

        return f(*[put(a) for a in args], **kwargs)

    graph = make_fx(program)(*tensors)
    imported = with_oracle(from_torch(graph))
    assert bool(imported.coverage.opaque) == opaque, imported.coverage.opaque
    wanted = f(*args, **kwargs)
    expected = [wanted] if isinstance(wanted, torch.Tensor) else list(wanted)
    for target in ("oracle", "numpy"):
        found: Any = imported.run(*tensors, target=target)
        as_torch = [torch.as_tensor(t) for t in found]
        near = 2e-2 if any(t.dtype == torch.bfloat16 for t in expected) else 2e-5
        torch.testing.assert_close(as_torch, expected, rtol=near, atol=near, equal_nan=True)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", DOMAINS)
def test_functions_outside_their_domains_and_at_zeros(name: str, dtype: torch.dtype) -> None:
    ends = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 300.0, -300.0, 1e10, -1e10, 3e38, -3e38, math.inf, -math.inf, math.nan]
    x = torch.tensor(ends, dtype=dtype)
    wanted = getattr(torch, name)(x)
    for target in ("python", "numpy"):
        found: Any = from_torch(getattr(torch, name), (x,)).run(x, target=target)
        torch.testing.assert_close(found, wanted, equal_nan=True)
        assert found[wanted == 0].signbit().tolist() == wanted[wanted == 0].signbit().tolist()


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("exponent", [0.5, -0.5, 0.25, 2, -2.0, 3])
def test_powers_at_zeros_and_infinities(exponent: float, dtype: torch.dtype) -> None:
    x = torch.tensor([-math.inf, math.inf, -0.0, 0.0, -1.0, 4.0, math.nan], dtype=dtype)
    of_a_tensor = torch.full((7,), exponent, dtype=dtype)
    for given in (exponent, of_a_tensor):
        wanted = torch.pow(x, given)
        for target in ("python", "numpy"):

            def power(x: torch.Tensor, given: Any = given) -> torch.Tensor:
                return torch.pow(x, given)

            found: Any = from_torch(power, (x,)).run(x, target=target)
            torch.testing.assert_close(found, wanted, equal_nan=True)
            assert torch.equal(found[wanted == 0].signbit(), wanted[wanted == 0].signbit())


def test_products_of_three_halves_are_rounded_once() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b, w = (torch.randn(s, generator=draw).bfloat16() for s in ((4, 8), (4, 8), (5, 8, 8)))
    found: Any = from_torch(torch.nn.functional.bilinear, (a, b, w)).run(a, b, w, target="numpy")
    once = torch.nn.functional.bilinear(a.double(), b.double(), w.double()).bfloat16()
    assert torch.equal(found, once)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_truth_values_over_whole_numbers(mode: str) -> None:
    a, b = torch.tensor([True, False, True]), torch.tensor([-1, 3, 2**63 - 1])

    def divided(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.div(a, b, rounding_mode=mode)

    found = from_torch(divided, (a, b)).run(a, b, target="numpy")
    torch.testing.assert_close(found, torch.div(a, b, rounding_mode=mode))


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_operation(case: str) -> None:
    check(*CASES[case])


@pytest.mark.parametrize("name", ["addmm", "baddbmm", "addbmm", "addmv"])
def test_product_and_addend_of_16_bits_are_rounded_once(name: str) -> None:
    """(1 + 2^-7)^2 - (1 + 2^-6) is 2^-14, which a product rounded to bfloat16 has lost."""
    of_batches = "bmm" in name
    near, far = (torch.full((1,) * (3 if of_batches else 2), v).bfloat16() for v in (1 + 2**-7, -1 - 2**-6))
    given = (far[0] if name in ("addbmm", "addmv") else far, near, near[0] if name == "addmv" else near)
    f = getattr(aten, name).default
    found: Any = with_oracle(from_torch(f, given)).run(*given, target="numpy")
    assert found.item() == 2**-14
    if name != "addmv":  # torch rounds twice there, for some sizes
        assert found.item() == f(*given).item()


@pytest.mark.sampled
@pytest.mark.parametrize("name", UNARY + POSITIVE)
def test_unary(name: str) -> None:
    f = getattr(aten, name).default
    x = P if name in POSITIVE else X * 2
    check(f, (x,), {})
    if name not in ("relu",):
        check(f, (x.double(),), {})


@pytest.mark.sampled
@pytest.mark.parametrize("name", DOMAINS)
def test_functions_by_formula(name: str) -> None:
    f, x = getattr(aten, name).default, DOMAINS[name]
    edges = torch.tensor([0.0, 1.0, -1.0, 1e-30, 80.0, float("inf"), float("-inf"), float("nan")])
    for given in (x, x.double(), edges, N):
        check(f, (given,), {})


OPAQUE_CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "sort": (aten.sort.default, (X,), {}),
    "kthvalue": (aten.kthvalue.default, (X, 2), {}),
    "topk": (aten.topk.default, (X, 2), {}),
    "convolution": (aten.convolution.default, (CUBE[:, :, None], KERNEL, None, *CONVOLUTION), {}),
}  # fmt: skip


@pytest.mark.parametrize("case", OPAQUE_CASES)
def test_opaque_operation_runs_torch(case: str) -> None:
    check(*OPAQUE_CASES[case], opaque=True)


def test_a_mask_as_index_makes_a_size_that_values_decide() -> None:
    def f(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x[mask].sum() + x[mask][:, None].mul(2).sum(0)

    imported = with_oracle(from_torch(f, (X, B)))
    assert list(imported.coverage.opaque) == ["aten.index.Tensor"]
    for mask in (B, ~B, Y > 1, torch.ones_like(B), torch.zeros_like(B)):
        for target in ("oracle", "numpy"):
            torch.testing.assert_close(imported.run(X, mask, target=target), f(X, mask))


def test_assertions_run_where_the_program_has_them() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        aten._assert_async.msg((x > 0).all(), "x must be positive")
        return x + 1

    imported = with_oracle(from_torch(make_fx(f)(P)))
    assert list(imported.coverage.opaque) == ["aten._assert_async.msg"]
    imported.run(P, target="oracle")
    with pytest.raises(FrontendError, match="x must be positive"):
        imported.run(X, target="oracle")


def test_no_operation_is_both_mapped_and_opaque() -> None:
    assert not HANDLERS.keys() & OPAQUE.keys()
    assert all(reason for reason in OPAQUE.values())
