"""Fusion text that is cut short, huge, deeply nested or hostile: one clear line, nothing evaluated."""

import pytest

import idgraph as ig

GOOD = """fusion f {
  t0 = input(shape=(4,))
  t1 = slice(t0, dims=(0,), starts=(0,), stops=(2,), steps=(1,))
  output t1
}"""

BAD = {
    "empty": ("", "expected 'fusion'"),
    "no brace": ("fusion f", "expected '{'"),
    "code": ("__import__('os').system('x')", "expected 'fusion'"),
    "code as a name": ("fusion f {\n  \"__import__('os')\" = launch(a)\n}", "there is no tensor 'a'"),
    "unknown operation": ("fusion f {\n  t0 = system(1)\n}", "unknown operation 'system'"),
    "dunder operation": ("fusion f {\n  t0 = __class__()\n}", "unknown operation '__class__'"),
    "unknown step": ("fusion f {\n  t0 = input(shape=(4,))\n  schedule t0 __init__(1)\n}", "unknown step '__init__'"),
    "unknown tensor": ("fusion f {\n  t1 = add(t0, 1)\n}", "there is no tensor 't0'"),
    "unknown attribute": ("fusion f {\n  t0 = input(shape=(4,), shap=3)\n}", "unknown attribute shap"),
    "name twice": ("fusion f {\n  t0 = input(shape=(4,))\n  t0 = input(shape=(4,))\n}", "already has a tensor"),
    "newline in a name": ('fusion f {\n  "a\\nb" = input(shape=(4,))\n}', "is not a name for a tensor"),
    "huge integer": ("fusion f {\n  t0 = input(shape=(" + "9" * 5000 + ",))\n}", "5000 digits"),
    "deep tuple": ("fusion f {\n  t0 = input(shape=" + "(" * 1000 + ")" * 1000 + ")\n}", "nested more than"),
    "deep expression": ("fusion f {\n  t0 = input(shape=(`" + "(" * 1000 + "1" + ")" * 1000 + "`,))\n}", ""),
    "text after the end": (GOOD + "\nfusion g {}", "nothing after the closing brace"),
    "wrong operand count": ("fusion f {\n  t0 = input(shape=(4,))\n  t1 = add(t0)\n}", "takes 2 operand"),
    "missing attribute": ("fusion f {\n  t0 = input(shape=(4,))\n  t1 = slice(t0)\n}", "attribute dims is None"),
    "wrong step arguments": (
        "fusion f {\n  t0 = input(shape=(4,))\n  schedule t0 split()\n}",
        "wrong arguments for split",
    ),
    "division by zero": ("fusion f {\n  symbol n\n  t0 = input(shape=(`n//0`,))\n}", "zero"),
}


@pytest.mark.parametrize("name", BAD)
def test_one_clear_error(name: str) -> None:
    text, message = BAD[name]
    with pytest.raises(ig.IdGraphError) as caught:
        ig.parse(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 900


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("schedule t split()", "split(axis, factor, inner)"), ("schedule t reorder(3)", "reorder(order)"),
        ("schedule t set_loop(3)", '("logical1", "logical0")'),
        ("u = input(shape=8)", "(8, 6), or (8,) for one of them"),
        ('mesh x=2\n place t shard("x")', 'shard(0, "x"), partial("x", "sum") or replicate()'),
    ],
)  # fmt: skip
def test_arguments_of_another_kind_have_a_hint(line: str, hint: str) -> None:
    with pytest.raises(ig.ParseError) as caught:
        ig.parse(f"fusion f {{\n  t = input(shape=(4, 6))\n  {line}\n}}")
    assert caught.value.hint == hint


def test_every_cut_of_a_good_text_is_an_error() -> None:
    assert ig.parse(GOOD).exprs
    for at in range(len(GOOD) - 1):
        with pytest.raises(ig.IdGraphError):
            ig.parse(GOOD[:at])


def test_too_much_text() -> None:
    with pytest.raises(ig.ParseError, match="20000000 bytes, at most"):
        ig.parse("x" * 20_000_000)


def test_strange_names_travel_quoted() -> None:
    f = ig.Fusion('my "fusion"')
    t = f.input("__import__('os')", shape=(4,))
    u = ig.add(t, 1.0, name='a b "c" \\ <&> äöü')
    f.output(u)
    again = ig.parse(str(f))
    assert again == f and [x.name for x in again.tensors] == [t.name, u.name]
