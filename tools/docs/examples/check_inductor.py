"""A wrong result of PyTorch 2.13's Inductor, refuted with the element that it gets wrong."""

import torch

import idgraph as ig


def f(x: torch.Tensor) -> torch.Tensor:
    x.index_put_((torch.arange(x.size(0)),), x * 2.0)
    x.add_(x.flip(0))
    return x


print(ig.check.inductor(f, (torch.rand(4, 8),)).refuted[0])
