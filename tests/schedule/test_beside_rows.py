"""What a row's members read at other columns of the row is computed there, in the row's own kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir.device import TargetName
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate

Build = Callable[[ig.Fusion], ig.Tensor]


def normed(f: ig.Fusion, *shape: int) -> ig.Tensor:
    x = f.input("x", shape=shape)
    return x * ig.rsqrt(ig.mean(x * x, len(shape) - 1, keepdim=True) + 1e-6)


def rotated_halves(f: ig.Fusion) -> ig.Tensor:
    y, c, s = normed(f, 3, 8, 64), f.input("c", shape=(8, 64)), f.input("s", shape=(8, 64))
    return y * c + ig.cat([-y[:, :, 32:], y[:, :, :32]], dim=2) * s


def partly_rotated(f: ig.Fusion) -> ig.Tensor:
    y, c = normed(f, 6, 96), f.input("c", shape=(6, 64))
    turned = y[:, :64] * c + ig.cat([-y[:, 32:64], y[:, :32]], dim=1)
    return ig.cat([turned, y[:, 64:]], dim=1)


def flipped(f: ig.Fusion) -> ig.Tensor:
    x = f.input("x", shape=(10, 50))
    e = ig.exp(x - ig.amax(x, 1, keepdim=True))
    y = e / ig.sum(e, 1, keepdim=True)
    return y - ig.flip(y, (1,))


def rolled(f: ig.Fusion) -> ig.Tensor:
    y = normed(f, 12, 40)
    return ig.roll(y, 3, 1) + y * 0.5 - ig.roll(y, -7, 1)


def padded(f: ig.Fusion) -> ig.Tensor:
    y = normed(f, 7, 33)
    return y - ig.pad(y[:, 1:], (0, 1))


def banded(f: ig.Fusion) -> ig.Tensor:
    """One place is that of the row, and that of the column."""
    x, n = f.input("x", shape=(40, 40)), f.iota(40) * 3
    return ig.sum(ig.where(ig.lt(ig.abs(ig.unsqueeze(n, 1) - n), 14), x, 0.0), 1)


def lower_turned(f: ig.Fusion) -> ig.Tensor:
    """The mask has no row axis, and its loops none of the blocks that rows are on."""
    x, n, m = f.input("x", shape=(24, 16, 16)), f.iota(16), f.iota(16)
    below = ig.le(ig.unsqueeze(n, 0) - ig.unsqueeze(m, 1), 0)
    return ig.where(below, ig.permute(x, (0, 2, 1)), 0.0) * ig.exp(-ig.amax(ig.abs(x), (1, 2), keepdim=True))


CASES = (rotated_halves, partly_rotated, flipped, rolled, padded, banded, lower_turned)


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["python", "numpy", "cpu", "cuda"])
@pytest.mark.parametrize("build", CASES, ids=lambda b: b.__name__)
def test_one_kernel_with_the_values_of_the_definition(build: Build, target: TargetName) -> None:
    f = ig.Fusion("f")
    name = f.output(build(f)).name
    given = random_inputs(f, 3)
    want = evaluate(f, given)[name]
    ig.schedule.auto(f)
    program = ig.emit(f, target=target)
    assert len(program.kernels) == 1
    if target != "cuda":
        np.testing.assert_allclose(program.run(given)[name], want, rtol=2e-5, atol=2e-6)
    assert ig.validate(f).ok


def other_rows(f: ig.Fusion) -> ig.Tensor:
    y = normed(f, 12, 40)
    return y + ig.roll(y, 1, 0)


def turned(f: ig.Fusion) -> ig.Tensor:
    y = normed(f, 16, 16)
    return y + ig.permute(y, (1, 0))


@pytest.mark.parametrize("build", [other_rows, turned], ids=lambda b: b.__name__)
def test_other_rows_wait_for_all_of_them(build: Build) -> None:
    f = ig.Fusion("f")
    name = f.output(build(f)).name
    given = random_inputs(f, 3)
    want = evaluate(f, given)[name]
    ig.schedule.auto(f)
    program = ig.emit(f, target="cpu")
    assert len(program.kernels) > 1
    np.testing.assert_allclose(program.run(given)[name], want, rtol=2e-5, atol=2e-6)
