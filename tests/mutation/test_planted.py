"""The checks can fail: wrong index maps are planted, and each check must find them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

import idgraph as ig
from idgraph.arith import Expr, simplify
from idgraph.index import Access
from idgraph.ir import Fusion, TensorExpr
from idgraph.validate import AddressMismatch, Report, ValueMismatch, check_addresses, check_values, validate

Change = Callable[[Access], Access]


class Mutant(ig.IdModel):
    """An index model with one access changed: the write (operand None), a read, or all (-1) of one operation."""

    def __init__(self, f: Fusion, op: str, operand: int | None, change: Change) -> None:
        super().__init__(f)
        self.op, self.operand, self.change = op, operand, change

    def _mutate(self, a: Access) -> Access:
        hit = a.expr.op == self.op and self.operand in (a.operand, -1)
        return self.change(a) if hit else a

    def write(self, e: TensorExpr) -> Access:
        return self._mutate(super().write(e))

    def read(self, e: TensorExpr, operand: int) -> Access:
        return self._mutate(super().read(e, operand))


def rotation() -> Fusion:
    """t0 + cat(t0[5:], t0[:5]) over rows, loops split unevenly: every access has something to get wrong."""
    f = ig.Fusion("rotation")
    t0 = f.input("t0", shape=(3, 10), strides=(12, 1))
    t4 = f.output(t0 + ig.cat([t0[:, 5:], t0[:, :5]], 1))
    t4.split(1, 4)
    return f


def shifted(a: Access) -> Access:
    """Reads one element further along the last axis."""
    return dataclasses.replace(a, logical=(*a.logical[:-1], a.logical[-1] + 1), address=a.address + 1)


def unguarded(a: Access) -> Access:
    """The predicate forgotten."""
    return dataclasses.replace(a, conditions=())


def wrong_stride(a: Access) -> Access:
    """The rows taken for contiguous: coordinates right, address wrong."""
    address: Expr = simplify(a.coordinates[0] * a.tensor.axes[1].extent + a.coordinates[1])
    return dataclasses.replace(a, address=address)


def never(a: Access) -> Access:
    """A predicate that is one element too strict."""
    return dataclasses.replace(a, conditions=(*a.conditions, a.logical[-1] < a.tensor.logical[-1].extent - 1))


PLANTS: list[tuple[str, str, int | None, Change, str, bool]] = [
    ("shift of a read", "slice", 0, shifted, "reads the wrong element", True),
    ("shift of a write", "cat", None, shifted, "reads the wrong element", False),
    ("no predicate on a write", "add", None, unguarded, "writes outside the tensor", False),
    ("no predicate at all", "add", -1, unguarded, "writes outside the tensor", True),
    ("no predicate on a cat operand", "cat", 0, unguarded, "reads where the operation reads nothing", True),
    ("wrong stride", "add", 0, wrong_stride, "wrong address", True),
    ("a write too strict", "add", None, never, "reads where nothing is written", True),
    ("a read too strict", "add", 1, never, "does not read what the operation reads", False),
]


@pytest.mark.sampled
@pytest.mark.parametrize("plant", PLANTS, ids=lambda p: p[0])
@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_addresses_catch_it(plant: tuple[str, str, int | None, Change, str, bool], engine: str) -> None:
    """Both engines find the same smallest loop point."""
    _, op, operand, change, kind, _ = plant
    f = rotation()
    assert check_addresses(f).ok
    report = check_addresses(f, model=Mutant(f, op, operand, change), engine="numba" if engine == "numba" else "numpy")
    found = report.mismatch
    assert found is not None
    assert found.kind.startswith(kind), found.kind
    assert str(found) == str(check_addresses(f, model=Mutant(f, op, operand, change), engine="numpy").mismatch)


@pytest.mark.parametrize("plant", [p for p in PLANTS if p[5]], ids=lambda p: p[0])
@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_values_catch_it(plant: tuple[str, str, int | None, Change, str, bool], target: str) -> None:
    """Wherever a value can show it, the kernel's output does, or the target stops the stray access itself."""
    _, op, operand, change, _, _ = plant
    f = rotation()
    where = "python" if target == "python" else "numpy" if target == "numpy" else "cpu"
    assert check_values(f, where).ok
    report = check_values(f, where, model=Mutant(f, op, operand, change))
    assert isinstance(report.mismatch, ValueMismatch)


def test_the_counterexample_is_the_smallest_point() -> None:
    """The first faulty point in the order of the loops, with both elements and addresses and the way there."""
    f = rotation()
    found = check_addresses(f, model=Mutant(f, "add", 0, wrong_stride)).mismatch
    assert isinstance(found, AddressMismatch)
    assert dict(found.point) == {"i0": 1, "i1": 0, "i2": 0}
    assert (found.coordinates, found.address, found.expected_address) == ((1, 0), 10, 12)
    assert (found.element, found.expected) == (10, 10)
    text = str(found)
    assert "i0 = 1, i1 = 0, i2 = 0" in text
    assert "Split(" in text


def test_validate_reports_the_address_first() -> None:
    """One report for both checks; it is falsy and prints the counterexample."""
    f = rotation()
    report = validate(f, target="python", model=Mutant(f, "slice", 0, shifted))
    assert isinstance(report, Report)
    assert not report.ok
    assert not report
    assert isinstance(report.counterexample, AddressMismatch)
    assert report.values is None
    assert "FAILED" in str(report)
    assert "not run" in str(report)


def test_a_wrong_reduction_is_found() -> None:
    """Terms added twice, or of another row, or left out."""
    f = ig.Fusion("sum")
    x = f.input("x", shape=(4, 6))
    t = f.output(ig.sum(x, 1))
    t.split(1, 4)
    assert check_addresses(f).ok
    twice = Mutant(f, "sum", None, unguarded)
    assert not check_addresses(f, model=twice).ok

    def folded(a: Access) -> Access:
        i1, i2 = a.loops[1].symbol, a.loops[2].symbol
        return dataclasses.replace(a, logical=(a.logical[0], (i1 * 4 + i2) % 6), conditions=())

    found = check_addresses(f, model=Mutant(f, "sum", None, folded)).mismatch
    assert found is not None

    def mixed(a: Access) -> Access:
        return dataclasses.replace(a, logical=((a.logical[0] + a.loops[1].symbol) % 4, a.logical[1]))

    found = check_addresses(f, model=Mutant(f, "sum", None, mixed)).mismatch
    assert found is not None


def test_a_wrong_slot_is_found() -> None:
    """A consumer that looks into another slot of an intermediate's buffer."""
    f = ig.Fusion("slots")
    x = f.input("x", shape=(4, 6))
    t = ig.neg(x)
    u = f.output(t * 2.0)
    u.split(1, 3)
    t.split(1, 3)
    t.inline(1)
    assert check_addresses(f).ok

    def moved(a: Access) -> Access:
        last = a.slots[-1]
        assert last is not None
        return dataclasses.replace(a, slots=(*a.slots[:-1], (last + 1) % 3))

    for engine in ("numpy", "numba"):
        found = check_addresses(
            f, model=Mutant(f, "mul", 0, moved), engine="numba" if engine == "numba" else "numpy"
        ).mismatch
        assert found is not None
        assert found.kind == "reads a buffer slot that holds another element"
    assert not check_values(f, "python", model=Mutant(f, "mul", 0, moved)).ok


def test_a_kernel_that_writes_around_its_buffer_is_found() -> None:
    """Guard zones on the CPU target: an address past the end changes no output element, yet shows."""
    f = ig.Fusion("guards")
    f.output(ig.copy(f.input("x", shape=(8,))))

    def beyond(a: Access) -> Access:
        i0 = a.loops[0].symbol
        return dataclasses.replace(a, address=a.address + 8 * (i0 // 7))

    found = check_values(f, "cpu", model=Mutant(f, "copy", None, beyond)).mismatch
    assert isinstance(found, ValueMismatch)
