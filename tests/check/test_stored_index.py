"""An index loaded from stored integers (an ``arange``): its values are known, on both sides or on one."""

from __future__ import annotations

from typing import Any

import pytest

import idgraph as ig

TEXT = """fusion "f" {
  x = input(shape=(9, 4), dtype="float32")
  k = iota(n=6, start=1, step=1, dtype="int64")
  c = roll(k, shifts=(2,), dims=(0,))
  y = embedding(c, x)
  z = exp(y)
  output c
  output z
}"""


def nests(loaded: str | None, index: str) -> dict[str, Any]:
    """Rows of ``x`` by the numbers stored in ``c``, which are loaded at ``loaded``, or by ``index`` alone."""
    store: dict[str, Any] = {
        "name": "store",
        "loops": [["m", 6]],
        "writes": [{"buffer": "c", "index": "m", "reads": []}],
    }
    reads = [{"buffer": "x", "index": f"({index})*4 + j"}]
    nest: dict[str, Any] = {"name": "rows", "loops": [["i", 6], ["j", 4]]}
    if loaded is not None:
        reads.append({"buffer": "c", "index": loaded})
        nest["loads"] = {"v": {"buffer": "c", "index": loaded}}
        nest["places"] = {"p": {"value": "v", "size": 9}}
    nest["writes"] = [{"buffer": "z", "index": "i*4 + j", "reads": reads}]
    buffers = {
        "x": {"tensor": "x", "strides": [4, 1]}, "c": {"tensor": "c", "strides": [1], "after": "store"},
        "z": {"tensor": "z", "strides": [4, 1], "after": "rows"},
    }  # fmt: skip
    return {"program": TEXT, "nests": [store, nest], "buffers": buffers}


def meant(i: int) -> int:
    """By hand: rolled by two, counted from one."""
    return (i - 2) % 6 + 1


def verdict(data: dict[str, Any]) -> dict[str, str]:
    return {r.buffer: r.verdict for r in ig.check.program(data).rows if r.node == "rows" and r.role == "read"}


@pytest.mark.parametrize(
    ("loaded", "index"), [("i", "p"), (None, "(i + 4)%6 + 1"), ("i", "(i + 4)%6 + 1"), ("(i + 1)%6", "(p + 4)%6 + 1")]
)
def test_the_row_is_the_same_however_its_number_is_had(loaded: str | None, index: str) -> None:
    for i in range(6):
        at = {"i": i, "p": 0 if loaded is None else meant(int(ig.simplify(loaded).evaluate({"i": i})))}
        right = int(ig.simplify(index).evaluate(at)) == meant(i)
        assert right, "the case itself"
    assert verdict(nests(loaded, index))["x"] in ("proved", "enumerated")


@pytest.mark.parametrize(("loaded", "index"), [("(i + 1)%6", "p"), (None, "(i + 4)%6"), ("i", "p + 1"), ("i", "i + 1")])
def test_another_row_is_refuted_at_a_point_that_shows_it(loaded: str | None, index: str) -> None:
    r = ig.check.program(nests(loaded, index))
    (row,) = [r for r in r.refuted if r.buffer == "x"]
    found = row.counterexample
    assert found is not None
    i = found.point["i"]
    number = 0 if loaded is None else meant(int(ig.simplify(loaded).evaluate({"i": i})))
    assert int(ig.simplify(index).evaluate({"i": i, "p": number})) != meant(i)


def test_inductor_with_positions_from_an_arange() -> None:
    torch: Any = pytest.importorskip("torch")

    def embed(token: Any, where: Any, ids: Any) -> Any:
        at = torch.arange(ids.shape[1]).unsqueeze(0)
        return torch.nn.functional.embedding(ids, token) + torch.nn.functional.embedding(at, where)

    args = (
        torch.randn(20, 8, requires_grad=True),
        torch.randn(12, 8, requires_grad=True),
        torch.randint(0, 20, (3, 6)),
    )
    r = ig.check.inductor(embed, args)
    assert r.rows and r.ok and r.decided, str(r)
