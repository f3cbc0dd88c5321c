"""Programs that write in place: right, or refused by name where no graph without writes stands for them."""

from __future__ import annotations

import importlib
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from idgraph.errors import FrontendError
from idgraph.frontends import from_torch
from idgraph.frontends.torch_compile import backend

torch: Any = importlib.import_module("torch")  # half of its functions have no types
T = Any


def row_of_windows(y: T) -> None:
    y.unfold(0, 2, 1)[0].fill_(5.0)


def column_of_windows(y: T) -> None:
    y.unfold(0, 2, 1)[:, 0].mul_(2.0)


def all_of_a_strided_view(y: T) -> None:
    y.as_strided((2, 2), (1, 1)).add_(1.0)


def row_of_a_strided_view(y: T) -> None:
    y.as_strided((2, 2), (1, 1))[0].add_(1.0)


def windows_apart(y: T) -> None:
    y.unfold(0, 2, 2)[0].fill_(5.0)


def every_second(y: T) -> None:
    y.as_strided((2,), (2,)).fill_(9.0)


def row_of_an_expanded(y: T) -> None:
    y.expand(2, 4)[0].add_(1.0)


OVERLAPPING = (row_of_windows, column_of_windows, all_of_a_strided_view, row_of_a_strided_view)


@pytest.mark.parametrize("write", OVERLAPPING, ids=lambda f: f.__name__)
@pytest.mark.parametrize("of", ["copy", "argument", "gradient"])
def test_writes_through_overlapping_elements(write: Callable[[T], None], of: str) -> None:
    """Eager leaves what the last write did; a graph without writes adds up, or takes another one."""

    def program(x: T) -> T:
        y = x if of == "argument" else x.clone()
        write(y)
        if of != "gradient":
            return y * 1
        z = torch.ones(3, requires_grad=True)  # export does not take what computes gradients, make_fx does
        return torch.autograd.grad((z * 2).sum(), z)[0] + y[:3]

    with pytest.raises(FrontendError, match="several elements are one in memory") as error:
        from_torch(program, (torch.arange(4.0),))
    assert "y[0:2] = 5.0" in error.value.hint


EXPANDED: dict[str, Callable[[T], object]] = {
    "fill_": lambda y: y.expand(3, 4).fill_(2.0),
    "zero_": lambda y: y.expand_as(torch.ones(3, 4)).zero_(),
    "masked_fill_": lambda y: torch.broadcast_to(y, (3, 4)).masked_fill_(torch.arange(4) > 1, 3.0),
    "mask": lambda y: y.expand(3, 4).__setitem__(y.expand(3, 4) > 1, 9.0),
    "index_put_": lambda y: y.expand(3, 4).index_put_((torch.tensor([0, 2]),), torch.tensor(3.0)),
    "index_fill_": lambda y: y[:, None].expand(4, 3).t().index_fill_(0, torch.tensor([1]), 3.0),
    "broadcast_tensors": lambda y: torch.broadcast_tensors(y, torch.ones(3, 4))[0].fill_(4.0),
    "of a row": lambda y: y[1:].unsqueeze(1).expand(3, 2)[0].fill_(4.0),
}


@pytest.mark.parametrize("name", EXPANDED)
@pytest.mark.parametrize("of", ["copy", "argument", "gradient"])
@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors is deprecated")
def test_writes_through_an_expanded_axis(name: str, of: str) -> None:
    """Eager writes each element as often as the axis is long; torch's functionalization adds up the differences."""

    def program(x: T) -> T:
        y = x if of == "argument" else x.clone()
        EXPANDED[name](y)
        if of != "gradient":
            return y * 1
        z = torch.ones(3, requires_grad=True)
        return torch.autograd.grad((z * 2).sum(), z)[0] + y[:3]

    with pytest.raises(FrontendError, match="several elements are one in memory"):
        from_torch(program, (torch.arange(4.0),))
    if of == "gradient":
        return
    torch._dynamo.reset()
    mine, theirs = torch.arange(4.0), torch.arange(4.0)
    with pytest.warns(UserWarning, match="a function is left to eager mode: it writes to"):
        found = torch.compile(program, backend=backend)(mine)
    torch.testing.assert_close(found, program(theirs))
    torch.testing.assert_close(mine, theirs)


def test_an_expanded_axis_that_is_only_read_is_not_left_to_eager_mode() -> None:
    torch._dynamo.reset()
    x = torch.arange(4.0)

    def program(x: T) -> T:
        y = x.clone()
        y[1:].mul_(2.0)
        return y.expand(3, 4) + x.expand(3, 4).clone().fill_(1.0)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        torch.testing.assert_close(torch.compile(program, backend=backend)(x), program(x))


@pytest.mark.parametrize("write", [windows_apart, every_second, row_of_an_expanded], ids=lambda f: f.__name__)
def test_writes_through_views_whose_elements_lie_apart(write: Callable[[T], None]) -> None:
    def program(x: T) -> T:
        y = x.clone()
        write(y)
        return y

    x = torch.arange(4.0)
    torch.testing.assert_close(from_torch(program, (x,)).run(x, target="numpy"), program(x))


@pytest.mark.parametrize(("size", "step"), [(2, 2), (1, 2), (2, 3), (1, 5)])
@pytest.mark.parametrize("gradient", [False, True])
def test_writes_to_windows_that_leave_elements_out(size: int, step: int, gradient: bool) -> None:
    """Eager leaves the others as they were; torch's functionalization makes them 0."""

    def program(x: T) -> T:
        y = x.clone()
        y.unfold(0, size, step)[0].mul_(3.0)
        if not gradient:
            return y
        z = torch.ones(5, requires_grad=True)  # export does not take what computes gradients, make_fx does
        return torch.autograd.grad((z * 2).sum(), z)[0] + y

    with pytest.raises(FrontendError, match="writes to windows that leave elements out"):
        from_torch(program, (torch.arange(5.0),))


@pytest.mark.parametrize("name", ["transpose_", "swapaxes_", "t_"])
@pytest.mark.parametrize("shape", [(2, 3), (3, 3)])
def test_an_argument_that_changes_its_shape(name: str, shape: tuple[int, int]) -> None:
    x = torch.ones(shape)

    def program(x: T) -> T:
        return getattr(x, name)(*(() if name == "t_" else (0, 1))) * 2

    with pytest.raises(FrontendError, match=r"changes the shape or the strides of its argument 'x'") as error:
        from_torch(program, (x,))
    assert f"x.{name}(...)" in error.value.hint
    assert (tuple(x.shape), x.stride()) == (shape, (shape[1], 1))


def add_to_first(a: T, b: T) -> T:
    a.add_(1.0)
    return a + b


def test_two_arguments_in_one_memory() -> None:
    """Eager reads what it has written; a program that was captured reads each argument as it came."""
    memory = torch.arange(6.0)
    with pytest.raises(FrontendError, match="lie in one memory"):
        from_torch(add_to_first, (memory[:3], memory[1:4]))
    imported = from_torch(add_to_first, (torch.ones(3), torch.ones(3)))
    for first, second in ((memory[:3], memory[1:4]), (memory[:3], memory[:3]), (memory[::2], memory[2:5])):
        with pytest.raises(FrontendError, match="'a', which the program writes, and 'b' lie in one memory"):
            imported.run(first, second, target="numpy")
    assert memory.tolist() == [0, 1, 2, 3, 4, 5]
    expected = torch.tensor([1.0 + 1, 3 + 3, 5 + 5])
    torch.testing.assert_close(imported.run(memory[::2], memory[1::2], target="numpy"), expected)
    assert memory.tolist() == [1, 1, 3, 3, 5, 5]


def test_a_program_without_tensors_returns_tensors() -> None:
    def shifted(k: int) -> T:
        return torch.arange(4) + k

    programs: list[tuple[Callable[..., T], tuple[int, ...]]] = [(lambda: torch.ones(2, 3) + 1, ()), (shifted, (3,))]
    for program, args in programs:
        got = from_torch(program, args).run(*args, target="numpy")
        torch.testing.assert_close(got, program(*args))


def window_of_argument(x: T) -> T:
    x.unfold(1, 3, 2)[:, 1].mul_(2.0)
    return x + 0


def ordered_writes(x: T) -> T:
    y = x.clone()
    v = y.unfold(1, 2, 1)
    v[:, 0] = 9.0
    v[:, 1] = 8.0
    return y + v.sum()


def windows_with_gaps(x: T) -> T:
    y = x.clone()
    y.unfold(1, 2, 3)[:, :, 1].neg_()
    return y


def in_place_activation(x: T) -> T:
    return torch.relu_(x.clone().unfold(1, 2, 1)) + 1


def memory_of_one_element(x: T) -> T:
    y = x.clone()
    torch.as_strided(y, (3,), (0,), 1)[0:1].fill_(7.0)
    return y


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "program",
    [window_of_argument, ordered_writes, windows_with_gaps, in_place_activation, memory_of_one_element],
    ids=lambda f: f.__name__,
)
def test_a_compiled_function_with_such_writes_runs_in_eager_mode(program: Callable[[T], T], dynamic: bool) -> None:
    """torch's functionalization refuses some of them, and makes the elements between windows 0."""
    torch._dynamo.reset()
    x = torch.arange(21.0).view(3, 7)
    own = x.clone()
    compiled = torch.compile(program, backend=backend, dynamic=dynamic)
    with pytest.warns(UserWarning, match="a function is left to eager mode: it writes to"):
        found = compiled(own)
    left = x.clone()
    torch.testing.assert_close(found, program(left))
    torch.testing.assert_close(own, left)  # written once


def test_a_compiled_function_that_only_reads_windows_is_not_left_to_eager_mode() -> None:
    torch._dynamo.reset()
    x = torch.arange(7.0)

    def program(x: T) -> T:
        y = x.clone()
        y.add_(x.unfold(0, 1, 1)[:, 0])
        return y.unfold(0, 2, 1).sum(1)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        torch.testing.assert_close(torch.compile(program, backend=backend)(x), program(x))


@pytest.fixture
def texts() -> Iterator[list[str]]:
    """What the backend logs."""
    found: list[str] = []
    logger = logging.getLogger("idgraph.backend")
    handler, level = logging.Handler(), logger.level
    handler.emit = lambda record: found.append(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_what_a_graph_writes_last_is_written_by_its_call(texts: list[str]) -> None:
    """A cache that is filled, a view of it and statistics of a batch: no copy is made around the call."""

    class Filled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()  # pyright: ignore[reportUnknownMemberType]
            self.norm = torch.nn.BatchNorm1d(4)

        def forward(self, x: T, rows: T, at: T) -> tuple[T, T]:
            rows.index_copy_(0, at, x)
            rows.mul_(2)
            return self.norm(rows).sum(1), rows[0]

    torch.manual_seed(0)
    model, other = Filled(), Filled()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="idgraph")
    rows = torch.randn(6, 4)
    same = rows.clone()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("error", ".*left to eager mode.*")
        for k in range(3):
            x, at = torch.randn(2, 4), torch.tensor([k, k + 1])
            found, view = compiled(x, rows, at)
            wanted, _ = other(x, same, at)
            torch.testing.assert_close(found, wanted)
            torch.testing.assert_close(rows, same)
            assert view.data_ptr() == rows.data_ptr()
    for a, b in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b)
    (copy,) = re.findall(r"foreach_copy\(\[(.*?)\]", "\n".join(texts))
    assert copy.count(",") == 3, "the rows, mean, variance and count"


def test_an_argument_that_is_read_after_it_is_written_is_not_written_last() -> None:
    from idgraph.frontends import torch_export

    def read(x: T, y: T) -> T:
        row = x[0]
        x.copy_(y)
        return row + 1

    def apart(x: T, y: T) -> T:
        x.copy_(y)
        return y + 1

    make_fx: Any = torch.fx.experimental.proxy_tensor.make_fx
    for program, written in ((read, []), (apart, [0])):
        graph = make_fx(program)(torch.randn(3, 2), torch.randn(3, 2))
        copies = [n for n in graph.graph.nodes if n.target is torch.ops.aten.copy_.default]
        assert len(copies) == 1 and not copies[0].users
        made, numbers = torch_export._with_new_values(torch, graph)  # pyright: ignore[reportPrivateUsage]
        assert numbers == written
        assert (made is graph) == (not written)


def _decoded(cache: T, places: T, new: T, weight: T) -> tuple[T, T, T]:
    cache.index_copy_(2, places, new)
    return cache[0, 0] @ weight, (cache * 2).sum(-1), cache


def _written_slice(cache: T, places: T, new: T, weight: T) -> tuple[T, T, T]:
    cache[:, :, 3:4] = new
    return cache[0, 0] @ weight, (cache * 2).sum(-1), cache


def _written_row(cache: T, places: T, new: T, weight: T) -> tuple[T, T, T]:
    cache[:, :, -1] = new[:, :, 0]
    return cache[0, 0] @ weight, (cache * 2).sum(-1), cache


def _read_before(cache: T, places: T, new: T, weight: T) -> tuple[T, T, T]:
    before = cache.sum(-1)
    cache.index_copy_(2, places, new)
    return before, (cache * 2).sum(-1), cache


LYING: dict[str, Callable[[T], T]] = {
    "rows": torch.clone,
    "misaligned": lambda x: (
        torch.frombuffer(bytearray(4 + 4 * x.numel()), dtype=x.dtype, offset=4).view(x.shape).copy_(x)
    ),
    "columns": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
}


@pytest.mark.parametrize("lying", LYING)
@pytest.mark.parametrize("program", [_decoded, _written_slice, _written_row, _read_before], ids=lambda f: f.__name__)
def test_an_argument_that_is_only_written_at_places_is_written_there(
    program: Callable[..., tuple[T, T, T]], lying: str, texts: list[str]
) -> None:
    """The cache of a decode step: kernels write a row of it, none copies the rest, however the argument lies."""
    cache, new, weight = (torch.randn(s) for s in ((1, 4, 64, 16), (1, 4, 1, 16), (16, 8)))
    eager, ours = LYING[lying](cache), LYING[lying](cache)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(program, backend="idgraph")
        for n in (5, 63, 0):
            places = torch.tensor([n])
            for x, y in zip(program(eager, places, new, weight), compiled(ours, places, new, weight), strict=True):
                torch.testing.assert_close(x, y)
            assert torch.equal(eager, ours)
    text = next(x for x in reversed(texts) if "a call runs" in x)
    copied = lying == "columns" or program is _read_before
    assert ("foreach_copy" in text) == copied, text
    assert ("empty_strided((1, 4, 64, 16)" in text) == copied, text


def test_copies_of_small_results_into_arguments_are_one_call(texts: list[str]) -> None:
    def count(a: T, b: T, x: T) -> T:
        a.add_(1)
        b.mul_(2)
        return x * a

    torch._dynamo.reset()
    given = [torch.ones(1), torch.ones(3), torch.ones(3)]
    with torch.no_grad():
        compiled = torch.compile(count, backend="idgraph")
        for n in (2, 3):
            assert compiled(*given).tolist() == [float(n)] * 3
    assert [t.tolist() for t in given[:2]] == [[3.0], [4.0] * 3]
    text = next(x for x in texts if "a call runs" in x)
    assert text.count("foreach_copy(") == 1, text
