"""Torch functions that no captured graph has, by subject: results are eager's, nothing is opaque but what is named."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import pytest

from idgraph.frontends import from_torch

torch: Any = importlib.import_module("torch")  # half of its functions have no types
F: Any = torch.nn.functional
leaves: Any = torch.utils._pytree.tree_leaves
T = Any


def normal(*shape: int) -> T:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def numbers(top: int, *shape: int) -> T:
    return torch.randint(0, top, shape, generator=torch.Generator().manual_seed(top))


INTEGERS = numbers(5, 3, 4)


def half(x: T) -> T:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def rotary(q: T, cache: T, cos: T, sin: T) -> Any:
    """Llama's with positions, ChatGLM's pairs, Qwen2-VL's sections."""
    inv = 1.0 / (10000 ** (torch.arange(0, 8, 2, dtype=torch.int64).float() / 8))
    pos = torch.arange(6)[None].expand(2, 6)
    turns = (inv[None, :, None].expand(2, -1, 1) @ pos[:, None, :].float()).transpose(1, 2)
    both = torch.cat((turns, turns), -1)
    llama = q * both.cos()[:, None] + half(q) * both.sin()[:, None]
    x, kept = q.permute(2, 0, 1, 3)[..., :4], q.permute(2, 0, 1, 3)[..., 4:]
    xs, c = x.reshape(6, -1, 4, 2, 2), cache.view(6, -1, 1, 2, 2)
    pairs = [xs[..., 0] * c[..., 0] - xs[..., 1] * c[..., 1], xs[..., 1] * c[..., 0] + xs[..., 0] * c[..., 1]]
    glm = torch.cat((torch.stack(pairs, -1).flatten(3), kept), -1)
    cut = [1, 2, 1] * 2
    cs, ss = (torch.cat([m[k % 3] for k, m in enumerate(t.split(cut, -1))], -1).unsqueeze(1) for t in (cos, sin))
    return llama, glm, q * cs + half(q) * ss


def biases(scores: T, table: T) -> Any:
    """ALiBi, T5's buckets, a causal mask, Swin's relative places."""
    slopes = torch.tensor([2 ** (-(i + 1.0)) for i in range(4)])
    far = torch.arange(6)[None, :] - torch.arange(6)[:, None]
    mask = torch.triu(torch.full((6, 6), float("-inf")), 1)
    alibi = F.softmax(scores + slopes[:, None, None] * far + mask, -1)
    bucket, n = (far > 0).to(torch.long) * 8, far.abs()
    large = 4 + (torch.log(n.float().clamp(min=1) / 4) / math.log(32) * 4).to(torch.long)
    bucket = bucket + torch.where(n < 4, n, torch.min(large, torch.full_like(large, 7)))
    t5 = F.embedding(bucket, table).permute(2, 0, 1)
    grid = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")).flatten(1)
    place = (grid[:, :, None] - grid[:, None, :]).permute(1, 2, 0).contiguous()
    place[:, :, 0] += 1
    place[:, :, 1] += 1
    place[:, :, 0] *= 3
    return alibi, t5, table[place.sum(-1).view(-1)].view(4, 4, -1).permute(2, 0, 1)


def images(x: T, w: T) -> Any:
    """Windows, patches, pools, folds, pads, sampling."""
    b, c, h, v = x.shape
    rolled = torch.roll(x.permute(0, 2, 3, 1), (-2, -2), (1, 2))
    windows = rolled.view(b, h // 4, 4, v // 4, 4, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 4, 4, c)
    patches = x.reshape(b, c, 2, 4, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(b, 4, -1) @ w
    columns = F.unfold(x, (2, 3), padding=1, stride=2, dilation=1)
    return {
        "swin": windows, "vit": patches, "unfold": columns,
        "fold": F.fold(F.unfold(x, 3, padding=1), (h, v), 3, padding=1),
        "max": F.max_pool2d(x, 3, 2, 1), "average": F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        "adaptive": [F.adaptive_avg_pool2d(x, (2, 3)), F.adaptive_avg_pool2d(x, 1)],
        "pads": [F.pad(x, (1, 2, 2, 1), mode=m) for m in ("reflect", "replicate", "circular")],
        "near": [F.interpolate(x, size=(5, 7)), F.interpolate(x, scale_factor=3), F.interpolate(x, scale_factor=0.5)],
        "linear": [F.interpolate(x, size=(5, 7), mode="bilinear"), F.interpolate(x, size=(4, 4), mode="area")],
        "pixels": [F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2)],
    }  # fmt: skip


def losses(x: T, y: T, t: T) -> Any:
    """Focal, smoothed, weighted, ignored, and what compares distributions."""
    ce = F.cross_entropy(x, t, reduction="none")
    return [
        (0.25 * (1 - torch.exp(-ce)) ** 2 * ce).mean(), F.cross_entropy(x, t, label_smoothing=0.1),
        F.cross_entropy(x, t, y[0].abs(), ignore_index=2), F.cross_entropy(x, F.softmax(y, -1)),
        F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"), F.cosine_similarity(x, y),
        F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=y[0].abs()), F.nll_loss(F.log_softmax(x, 1), t),
        F.smooth_l1_loss(x, y), F.huber_loss(x, y), F.mse_loss(x, y), F.triplet_margin_loss(x, y, x + 1.0),
    ]  # fmt: skip


def moved(x: T) -> Any:
    """Functions that only move elements."""
    return [
        x.tril(), x.triu(1), torch.diag(x[0]), torch.diag_embed(x[0], 1), x.diagonal(1, 1, 2), x.tile(2, 1, 3),
        x.repeat_interleave(3, dim=1), torch.rot90(x, -1, (1, 2)), x.movedim((0, 2), (2, 0)), x.flip(0, 2),
        torch.roll(x, (1, -2, 3), (0, 1, 2)), torch.roll(x, 5), x.unfold(2, 3, 2), *x.tensor_split(3, 2), *x.unbind(1),
        torch.hstack([x, x]), torch.block_diag(x[0], x[1]), x.narrow(1, 1, 2), x.unflatten(2, (1, 5)), x.swapaxes(0, 2),
        torch.diagonal_scatter(x[0], x[0, 0, :4]), torch.select_scatter(x, x[:, 0], 1, 2),
        x.as_strided((3, 2), (5, 2), 1),
        torch.cartesian_prod(x[0, 0], x[1, 1]), torch.tril_indices(4, 4), torch.linspace(0, 1, 5), torch.eye(3, 5),
    ]  # fmt: skip


def looked_up(x: T, i: T, s: T) -> Any:
    """Loaded coordinates, to read and to write."""
    return [
        x[i[:, 0]], x[:, i[0]], x[i[0], i[1]], x[i[:, None, 0], i[None, 0]], x[torch.tensor([-1, 0, -5])], x.take(i),
        x.gather(1, i), x.scatter(1, i % 2, 2.0), x.scatter_add(1, i, s),
        x.index_add(0, i[:3, 0], s[:3, :1].expand(3, 6)),
        x.index_copy(0, torch.tensor([3, 0]), x[:2]), x.index_fill(1, i[0], 7.0), torch.take_along_dim(x, i, 1),
        torch.index_put(x, (i[0],), x[:2], accumulate=True), x.put(i[0], s[0]), x.masked_scatter(x > 0, x * 2),
        F.one_hot(i, 5), torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), torch.isin(i, torch.tensor([1, 3])),
        torch.searchsorted(x.sort(1)[0].detach() * 0 + torch.arange(6.0), s + 2, right=True),
    ]  # fmt: skip


def folded(x: T) -> Any:
    """Reductions, scans, norms, searches."""
    return [
        x.logsumexp(-1), x.var(0), torch.std_mean(x, 1), x.norm(p=3, dim=1), torch.linalg.vector_norm(x, float("inf")),
        F.normalize(x, dim=1), x.cumsum(0), x.cumprod(1), x.cummax(1), x.cummin(0), (x > 0).cumsum(1), x.argmax(1),
        x.argmin(), *x.max(0), *x.min(1, keepdim=True), torch.aminmax(x, dim=1), x.prod(1), x.nanmean(0), x.diff(dim=1),
        torch.trapezoid(x, dim=1), torch.count_nonzero(x > 0, 1), x.softmax(0), F.rms_norm(x, (5,)), x.all(), x.any(1),
        F.group_norm(x.view(2, 2, 5), 2), F.instance_norm(x.view(2, 2, 5)), torch.vander(x[0], 3),
        x.argmax(0, keepdim=True),
    ]  # fmt: skip


def written(x: T, y: T) -> Any:
    """In-place operations on views of one tensor, and on the arguments."""
    x[:, 1:] += x[:, :-1].clone()
    view = x.view(-1)
    view[::2].mul_(2)
    y.copy_(x.T.reshape(4, 3))
    z = x.clone()
    z[z > 1] = 0
    z[1:3] *= 2
    z[0, torch.tensor([1, 3])] = 5.0
    z.diagonal().fill_(9)
    z.unsqueeze_(0).squeeze_(0).transpose_(0, 1)
    y[0].masked_fill_(y[0] > 0, -1.0)
    z.index_fill_(0, torch.tensor([1]), 4.0).scatter_(1, torch.tensor([[0], [1], [2], [0]]), -1.0)
    return z, view, x, y[1:], x[0]


def products(a: T, b: T, c: T) -> Any:
    """The matrix family."""
    v = a[0, 0]
    return [
        a @ b, torch.bmm(a, b), torch.baddbmm(c, a, b, beta=0.5, alpha=2), torch.addmm(c[0], a[0], b[0]), a[0] @ v,
        torch.einsum("bij,bjk->ik", a, b), torch.einsum("bii->bi", b[:, :, :4]), torch.tensordot(a, b, ([2], [1])),
        torch.outer(v, v), v.dot(v), torch.kron(a[0, :2, :2], b[0, :2, :2]), torch.inner(a, a),
        F.linear(a, b[0].T, c[0, 0]),
        INTEGERS @ INTEGERS.T, torch.addmv(c[0, :, 0], a[0], v), torch.trace(b[0, :4, :4]),
    ]  # fmt: skip


GROUPS: dict[Callable[..., Any], tuple[T, ...]] = {
    rotary: (normal(2, 4, 6, 8), normal(6, 2, 2, 2), normal(3, 2, 6, 8), normal(3, 2, 6, 8)),
    biases: (normal(1, 4, 6, 6), normal(16, 3)),
    images: (normal(2, 4, 8, 8), normal(64, 5)),
    losses: (normal(6, 5), normal(5, 6).T, numbers(5, 6)),
    moved: (normal(3, 4, 5),),
    looked_up: (normal(5, 6), numbers(5, 5, 2), normal(5, 2)),
    folded: (normal(4, 5),),
    written: (normal(3, 4), normal(4, 3)),
    products: (normal(2, 3, 4), normal(2, 4, 5), normal(2, 3, 5)),
}
OPAQUE = {looked_up: {"aten.sort.default", "aten._assert_async.msg"}}  # one_hot checks its numbers


@pytest.mark.sampled
@pytest.mark.parametrize("program", GROUPS, ids=lambda f: f.__name__)
def test_functions(program: Callable[..., Any]) -> None:
    args = GROUPS[program]
    imported = from_torch(program, tuple(t.clone() for t in args))
    assert set(imported.coverage.opaque) <= OPAQUE.get(program, set()), imported.coverage
    mine, torchs = tuple(t.clone() for t in args), tuple(t.clone() for t in args)
    found, wanted = leaves(imported.run(*mine, target="numpy")), leaves(program(*torchs))
    assert len(found) == len(wanted)
    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(mine, torchs)  # what the program writes in place


def attention(q: T, k: T, v: T, mask: T, bias: T) -> Any:
    """Results and gradients: plain, causal, masked, biased, of heads that share keys, in two bytes."""
    found: list[Any] = []
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}, {"attn_mask": bias, "scale": 0.3}):
        args = [t.clone().requires_grad_(True) for t in (q, k, v)]
        y = F.scaled_dot_product_attention(*args, **options, enable_gqa=True)
        found.append((y, *torch.autograd.grad((y * torch.arange(y.numel()).view(y.shape) * 0.01).sum(), args)))
    return found


def test_attention_and_its_gradients() -> None:
    args = normal(2, 4, 5, 4), normal(2, 2, 7, 4), normal(2, 2, 7, 8)[..., :4], normal(5, 7) > -1, normal(2, 1, 5, 7)
    imported = from_torch(attention, args)
    assert imported.coverage.opaque == {}
    found, wanted = leaves(imported.run(*args, target="numpy")), leaves(attention(*args))
    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5)
