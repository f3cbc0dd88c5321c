"""What a tree stores: loaded positions, running values, operations in parts, constants, all sizes, bounds."""

from __future__ import annotations

from typing import Any

import pytest

import idgraph as ig
from idgraph.check import CheckError
from tests.check.tree_lowerings import cut, loop, put
from tests.check.tree_lowerings import text as program

Data = dict[str, Any]
SCAN = program("(4,)", "  y = cumsum(x, dim=0)")
SUM = program("(4,)", '  b = input(shape=(4,), dtype="float32")', "  y = add(x, b)")


def ran(data: Data) -> bool:
    return all(ig.check.interpret(data, seed=s).right for s in range(10))


def right(data: Data) -> ig.check.CheckReport:
    r = ig.check.program(data)
    assert r.ok and r.decided and ran(data), str(r)
    return r


def wrong(data: Data) -> ig.check.CheckReport:
    r = ig.check.program(data)
    assert r.refuted and not r.ok and not ran(data), str(r)
    return r


def running(*steps: Data) -> Data:
    return {"program": SCAN, "body": [put("zero", "acc", "0"), loop("i", 4, *steps)]}


def test_a_running_sum_in_a_loop() -> None:
    add, out = put("more", "acc", "0", ("x", "i"), mode="add"), put("out", "y", "i", ("acc", "0"))
    right(running(add, out))
    wrong(running(out, add))
    first, more = put("first", "y", "0", ("x", "0")), put("more", "y", "i + 1", ("x", "i + 1"), ("y", "i"))
    right({"program": SCAN, "body": [first, loop("i", 3, more)]})
    assert "any order" in str(wrong({"program": SCAN, "body": [first, loop("i", 3, more, order="any")]}))


def test_a_copy_is_no_running_sum() -> None:
    """The nest alone reads what an element of the scan reads; what it stores is another value."""
    wrong({"program": SCAN, "nests": [put("k", "y", "i", ("x", "i"), loops=[["i", 4]])]})
    right({"program": SCAN, "nests": [put("k", "y", "i", ("x", "r", "r <= i"), loops=[["i", 4]], reduce=[["r", 4]])]})


@pytest.mark.parametrize("update", ["add", "store"])
def test_a_pointwise_operation_in_parts(update: str) -> None:
    first = put("first", "y", "i", ("x", "i"))
    reads = [("b", "i")] if update == "add" else [("y", "i"), ("b", "i")]
    more = put("more", "y", "i", *reads, mode=update)
    right({"program": SUM, "body": [loop("i", 4, first, more, order="any")]})
    wrong({"program": SUM, "body": [loop("i", 4, more, first)]})
    more["writes"][0]["reads"][-1]["index"] = "3 - i"
    assert "meant b[0]" in str(wrong({"program": SUM, "body": [loop("i", 4, first, more)]}))


def gather(index: str, position: str = "p", made: int = 4, late: bool = False) -> Data:
    lines = ('  k = input(shape=(5,), dtype="int64")', "  b = exp(x)", "  y = index_select(b, k, dim=0)")
    use = put("use", "y", "i", ("b", position), ("k", index), loops=[["i", 5]])
    use |= {"loads": {"v": {"buffer": "k", "index": index}}, "places": {"p": {"value": "v", "size": 4}}}
    make = put("make", "b", "j", ("x", "j"), loops=[["j", made]])
    return {
        "program": program("(4,)", *lines),
        "body": [loop("t", 1 if late else 2, *((use, make) if late else (make, use)))],
    }


def test_loaded_positions_inside_of_a_shared_loop() -> None:
    right(gather("i"))
    assert "by the value of k[4]" in str(wrong(gather("4 - i")))
    wrong(gather("i", "3 - p"))
    wrong(gather("i", made=3))
    wrong(gather("i", late=True))


def halo(reach: int = 2, order: str = "serial", private: tuple[str, ...] = ()) -> Data:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    b = ig.exp(f.input("x", shape=(4 * n + 2,)))
    b.name = "b"
    y = f.output(b[0 : 4 * n] + b[2 : 4 * n + 2])
    y.name = "y"
    buffer, base = (private[0], "") if private else ("b", "t*4 + ")
    make = loop("p", 4 + reach, put("make", buffer, f"{base}p", ("x", "t*4 + p")))
    use = loop("i", 4, put("use", "y", "t*4 + i", (buffer, f"{base}i"), (buffer, f"{base}i + 2")))
    body = [loop("t", 2, make, use, order=order, private=private)]
    body[0]["for"][1] = "n"
    return {"program": str(f), "symbols": {"n": {"min": 1}}, "body": body}


@pytest.mark.parametrize("private", [(), ("tile",)])
@pytest.mark.parametrize("order", ["serial", "any"])
def test_tiles_with_a_halo_are_proved_for_all_sizes(order: str, private: tuple[str, ...]) -> None:
    r = ig.check.program(halo(2, order, private))
    assert r.ok and r.decided and {row.verdict for row in r.rows} == {"proved"}, str(r)
    r = ig.check.program(halo(1, order, private))
    assert r.refuted and "n=" in str(r.refuted[0]), str(r)


def test_tiles_that_share_one_buffer_are_not_proved() -> None:
    data = halo(2, "any", ("tile",))
    data["body"][0]["private"] = []
    assert ig.check.program(data).refuted


@pytest.mark.parametrize("order", ["serial", "any"])
def test_what_is_too_large_to_follow_is_proved_or_unknown(order: str) -> None:
    """Tiles of 5 000 000 elements: each read of what its own tile writes, or of one element more."""
    n = 5_000_000

    def tiles(made: int) -> ig.check.CheckReport:
        make = loop("p", made, put("make", "tile", "p", ("x", "t*4 + p")))
        use = loop("i", 4, put("use", "y", "t*4 + i", ("tile", "i"), ("tile", "i + 1")))
        lines = ("  b = exp(x)", cut("l", "b", 0, n), cut("r", "b", 1, n + 1), "  y = add(l, r)")
        body = [loop("t", n // 4, make, use, order=order, private=("tile",))]
        return ig.check.program({"program": program(f"({n + 1},)", *lines), "body": body})

    r = tiles(5)
    assert r.ok and r.decided and {row.verdict for row in r.rows} == {"proved"}, str(r)
    assert not tiles(4).decided and not tiles(6).decided  # a hole; an element outside of x


def test_a_proof_needs_every_result() -> None:
    """A nest writes what a result means, to memory that is no result's."""
    p = program("(4,)", "  b = exp(x)", "  y = neg(b)", "  output b")
    nests = [
        put("k1", "y", "i", ("tmp", "i"), loops=[["i", 4]]), put("k0", "tmp", "i", ("x", "i"), loops=[["i", 4]])
    ]  # fmt: skip
    wrong({"program": p, "nests": nests})
    wrong({"program": p, "nests": nests[::-1]})


@pytest.mark.parametrize("where", ["read", "write"])
def test_a_touch_outside_is_a_finding_beside_another(where: str) -> None:
    first = put("k", "y", "i", ("x", "i + 1" if where == "read" else "3 - i"), loops=[["i", 4]])
    nests = [first] if where == "read" else [first, put("n", "y", "i + 4", ("x", "i"), loops=[["i", 1]])]
    r = ig.check.program({"program": program("(4,)", "  y = exp(x)"), "nests": nests})
    (row,) = [x for x in r.refuted if "outside of the memory" in x.because]
    assert row.role == where and len(r.refuted) > 1 and "0 to 3" in str(row)


TWICE = program("(4,)", "  y = mul(x, 2.0)")


def scaled(value: str) -> Data:
    nest = put("k", "y", "i", ("x", "i"), loops=[["i", 4]])
    nest["writes"][0]["value"] = value
    return {"program": TWICE, "nests": [nest]}


def test_another_constant_is_refuted() -> None:
    for good in ("r0*2.0", "r0 + r0", "2*r0*1", "where(i < 9, max(r0*2, -1e9), 0)"):
        r = ig.check.program(scaled(good))
        assert r.ok and r.decided, str(r)
    for bad in ("r0*3.0", "r0 + 2", "where(i < 3, r0*2, r0)", "-r0*2"):
        r = ig.check.program(scaled(bad))
        assert r.refuted and bad in str(r) and "another number" in str(r), str(r)


@pytest.mark.parametrize("bad", ["__import__('os')", "r1*2", "r0.x", "r0[0]", "lambda: 0", "(", "r0 if r0 else 1", ""])
def test_a_value_is_a_formula_of_the_reads(bad: str) -> None:
    with pytest.raises(CheckError, match="value"):
        ig.check.program(scaled(bad))


@pytest.mark.parametrize("constant", ["2.0", "3.0"])
def test_constants_of_other_compilers_are_compared(constant: str) -> None:
    mlir = f"""func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {{
  %c = arith.constant {constant} : f32
  affine.for %i = 0 to 4 {{
    %0 = affine.load %x[%i] : memref<4xf32>
    %1 = arith.mulf %0, %c : f32
    affine.store %1, %y[%i] : memref<4xf32>
  }}
  return
}}"""
    halide = f"produce y {{\n  parallel (i, 0, 4) {{\n    y[i] = x[i]*{constant}f\n  }}\n}}"
    for r in (ig.check.mlir(mlir, TWICE), ig.check.halide(halide, TWICE)):
        assert r.ok == (constant == "2.0"), str(r)


def unrolled(case: str) -> dict[str, Any]:
    """A row of eight elements added up: unrolled by two, in two halves, or as a tree in memory."""
    rows = {
        "step": [put("s", "y", "i"), loop("k", 4, put("a", "y", "i", ("y", "i"), *pair("i*8 + k*2", 1)))],
        "add": [put("s", "y", "i"), loop("k", 4, put("a", "y", "i", *pair("i*8 + k*2", 1), mode="add"))],
        "halves": [
            put("s", "a", "0"), put("t", "b", "0"),
            loop("k", 4, put("u", "a", "0", ("x", "i*8 + k*2"), mode="add"),
                 put("v", "b", "0", ("x", "i*8 + k*2 + 1"), mode="add")),
            put("o", "y", "i", ("a", "0"), ("b", "0")),
        ],
        "tree": [
            loop("k", 4, put("t", "t", "k", *pair("i*8 + k", 4))),
            loop("j", 2, put("u", "t", "j", ("t", "j"), ("t", "j + 2"))), put("o", "y", "i", ("t", "0"), ("t", "1")),
        ],
        "tree, read twice": [
            loop("k", 4, put("t", "t", "k", *pair("i*8 + k", 3))),
            loop("j", 2, put("u", "t", "j", ("t", "j"), ("t", "j + 2"))), put("o", "y", "i", ("t", "0"), ("t", "1")),
        ],
    }  # fmt: skip
    return {"version": 1, "program": program("(2, 8)", "  y = sum(x, dims=(1,))"), "body": [loop("i", 2, *rows[case])]}


def pair(index: str, step: int) -> list[tuple[str, str]]:
    return [("x", index), ("x", f"{index} + {step}")]


@pytest.mark.parametrize("case", ["step", "add", "halves", "tree"])
def test_a_sum_that_is_unrolled(case: str) -> None:
    r = ig.check.program(unrolled(case))
    assert r.ok and r.decided, str(r)


def test_an_element_twice_in_a_tree_of_sums_is_refuted() -> None:
    assert ig.check.program(unrolled("tree, read twice")).refuted


def test_products_of_an_unrolled_sum_are_of_their_pairs() -> None:
    """y = sum of x[k]*z[k], two products in a step; x[k] with another z is no product of the program."""
    p = program("(8,)", '  z = input(shape=(8,), dtype="float32")', "  e = mul(x, z)", "  y = sum(e, dims=(0,))")

    def judged(other: str) -> ig.check.CheckReport:
        step = put("a", "y", "0", ("y", "0"), *pair("k*2", 1), ("z", f"{other}*2"), ("z", f"{other}*2 + 1"))
        return ig.check.program({"version": 1, "program": p, "body": [put("s", "y", "0"), loop("k", 4, step)]})

    assert judged("k").decided
    assert not judged("(3 - k)").decided


def test_an_operand_that_is_added_once_more_is_refuted() -> None:
    p = program("(3,)", '  z = input(shape=(3,), dtype="float32")', "  y = add(x, z)")
    more = put("more", "y", "min(i, 2)", ("z", "min(i, 2)"), mode="add")
    r = ig.check.program({"version": 1, "program": p, "body": [
        loop("j", 3, put("first", "y", "j", ("x", "j"))), loop("i", 4, more),
    ]})  # fmt: skip
    assert r.refuted and "2" in str(r.refuted[0].counterexample), str(r)
