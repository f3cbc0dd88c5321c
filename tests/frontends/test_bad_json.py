"""Untrusted files: each ends in one clear error that names the node, or is read right; nothing is ever evaluated."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from idgraph.errors import FrontendError, IdGraphError, ParseError
from idgraph.frontends.graph_json import parse_program
from idgraph.frontends.import_ import from_json, import_program
from idgraph.ir.limits import LIMITS
from tools.bench.corpus import with_oracle

GOOD = (Path(__file__).parent / "graphs" / "rope_half_residual.core.json").read_text()


def graph() -> dict[str, Any]:
    return json.loads(GOOD)


def read(tmp_path: Path, data: dict[str, Any] | str | bytes) -> object:
    file = tmp_path / "graph.json"
    if isinstance(data, dict):
        data = json.dumps(data)
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return from_json(file)


def one_line(error: IdGraphError) -> str:
    assert "\n" not in error.what
    assert len(error.what) < 400
    assert "Traceback" not in str(error)
    return error.what


def test_cut_short_anywhere(tmp_path: Path) -> None:
    for size in [0, 1, 2, 10, 100, *range(500, len(GOOD), 701), len(GOOD) - 1]:
        with pytest.raises(ParseError) as caught:
            read(tmp_path, GOOD[:size])
        assert "not JSON" in one_line(caught.value)


def test_nodes_cut_short(tmp_path: Path) -> None:
    g = graph()
    g["nodes"].pop()
    with pytest.raises(ParseError, match="'n_nodes' says"):
        read(tmp_path, g)
    del g["n_nodes"]
    with pytest.raises(ParseError, match="no output node"):
        read(tmp_path, g)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1000 + "]" * 1000,
        "[" * 1_000_000,
        '{"nodes":' * 1000 + "1" + "}" * 1000,
        '{"nodes":[{"name":"x","op":"placeholder","target":"x","out":' + "[" * 900 + "]" * 900 + "}]}",
        '{"nodes":[{"name":"x","op":"call_function","target":"x","args":' + "[" * 900 + "]" * 900 + "}]}",
        '{"nodes":[{"name":"x","op":"call_function","target":"x","args":[{"slice":' + "[" * 90 + "]" * 90 + "}]}]}",
        '{"nodes":' + '{"a":' * 900 + "1" + "}" * 900 + "}",
    ],
    ids=["lists", "million", "objects", "out", "args", "slice", "nodes"],
)
def test_nested_deep(tmp_path: Path, text: str) -> None:
    with pytest.raises(ParseError) as caught:
        read(tmp_path, text)
    one_line(caught.value)


def test_huge(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="longer than"):
        read(tmp_path, " " * (LIMITS.bytes + 1))
    with pytest.raises(ParseError, match="100001 nodes, at most 100000"):
        read(tmp_path, '{"nodes":[' + "0," * 100_000 + "0]}")
    with pytest.raises(ParseError) as caught:
        read(tmp_path, '{"nodes":[' + "9" * 5000 + "]}")
    one_line(caught.value)


@pytest.mark.parametrize("text", ["", "null", "3", '"nodes"', "[]", "{}", '{"nodes":3}', '{"nodes":{}}', "NaN", "\x00"])
def test_no_graph_at_all(tmp_path: Path, text: str) -> None:
    with pytest.raises(ParseError) as caught:
        read(tmp_path, text)
    one_line(caught.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="not UTF-8"):
        read(tmp_path, b"\xff\xfe\x00")


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path, tmp_path / "new\nline.json", "a\x00b"):
        with pytest.raises(FrontendError, match="cannot be read") as caught:
            from_json(path)
        one_line(caught.value)


def set_field(key: str, value: Any, node: int = 6) -> Callable[[dict[str, Any]], None]:
    def change(g: dict[str, Any]) -> None:
        g["nodes"][node][key] = value

    return change


def set_out(key: str, value: Any, node: int = 0) -> Callable[[dict[str, Any]], None]:
    def change(g: dict[str, Any]) -> None:
        g["nodes"][node]["out"][key] = value

    return change


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "name is a number": (set_field("name", 3), "node number 6: 'name' is a number"),
    "name has a newline": (set_field("name", "a\nb"), r"node 'a\\nb'"),
    "name is empty": (set_field("name", ""), "1 to 200 printable"),
    "name is long": (set_field("name", "x" * 201), "1 to 200 printable"),
    "name twice": (set_field("name", "q"), "node 'q'.*second node"),
    "op unknown": (set_field("op", "call_method"), "node 'mul': 'op' is 'call_method'"),
    "target is a list": (set_field("target", []), "node 'mul': 'target'"),
    "target has a newline": (set_field("target", "aten.mul\n"), "node 'mul': 'target'"),
    "args is an object": (set_field("args", {}), "node 'mul': 'args' is an object"),
    "kwargs is a list": (set_field("kwargs", []), "node 'mul': 'kwargs' is a list"),
    "kwarg no name": (set_field("kwargs", {"a b": 1}), "node 'mul': kwarg 'a b'"),
    "ref to nothing": (set_field("args", [{"ref": "q"}, {"ref": "nothing"}]), "node 'mul'.* reads 'nothing'"),
    "ref to itself": (set_field("args", [{"ref": "q"}, {"ref": "mul"}]), "node 'mul'.* reads 'mul'"),
    "ref to later": (set_field("args", [{"ref": "q"}, {"ref": "add"}]), "node 'mul'.* reads 'add'"),
    "ref is a number": (set_field("args", [{"ref": 3}]), "node 'mul': .* is not a value"),
    "strange tag": (set_field("args", [{"eval": "1"}]), "node 'mul': .* is not a value"),
    "two tags": (set_field("args", [{"ref": "q", "dtype": "x"}]), "node 'mul': .* is not a value"),
    "argument missing": (set_field("args", [{"ref": "q"}]), "node 'mul'.*argument 1 'other' is missing"),
    "argument of wrong type": (set_field("args", [{"ref": "q"}, "text"]), "node 'mul'.*'other' is 'text', not"),
    "slice bound is text": (set_field("args", [{"ref": "q"}, 3, "0", 4], 7), "node 'slice_1'.*'start' is '0'"),
    "slice dim too large": (set_field("args", [{"ref": "q"}, 9, 0, 4], 7), "node 'slice_1'.*no axis 9"),
    "slice step zero": (set_field("args", [{"ref": "q"}, 3, 0, 4, 0], 7), "node 'slice_1'.*step 0"),
    "shapes do not fit": (set_out("shape", [2, 4, 16, 9]), "node '(q|mul)'"),
    "result of another shape": (set_out("shape", [2, 4, 16, 7], 6), "node 'mul'.*the graph says"),
    "result of another dtype": (set_out("dtype", "float64", 6), "node 'mul'.*the graph says float64"),
    "dtype unknown": (set_out("dtype", "float3"), "node 'q': 'dtype' is 'float3'"),
    "dtype a number": (set_out("dtype", 3), "node 'q': 'dtype' is 3"),
    "shape negative": (set_out("shape", [-1]), "node 'q': 'shape'"),
    "shape a symbol": (set_out("shape", ["s0", 4]), "node 'q': 'shape'"),
    "shape huge": (set_out("shape", [2**40, 2**40, 1, 1]), "node 'q': the shape has more"),
    "strides negative": (set_out("stride", [-1, 0, 0, 0]), "node 'q': 'stride'"),
    "strides too few": (set_out("stride", [1]), "node 'q': 4 extents with 1 strides"),
    "strides huge": (set_out("stride", [2**61, 2**61, 1, 1]), "node 'q': the strides reach"),
    "offset negative": (set_out("storage_offset", -1), "node 'q': 'storage_offset'"),
    "out is text": (set_field("out", "float32"), "node 'mul': 'out' is a string"),
    "rank huge": (set_out("shape", [1] * 65), "node 'q'"),
    "output reads nothing": (set_field("args", [[{"ref": "nothing"}]], -1), "output returns 'nothing'"),
    "output is not a list": (set_field("args", [{"ref": "q"}], -1), "output node's args"),
}


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_broken_graph(tmp_path: Path, case: str) -> None:
    change, message = BROKEN[case]
    g = graph()
    change(g)
    with pytest.raises((ParseError, FrontendError), match=message) as caught:
        with_oracle(read(tmp_path, g)).run(target="oracle")  # type: ignore[arg-type]
    one_line(caught.value)
    assert "graph.json" in str(caught.value)


def test_names_are_only_names(tmp_path: Path) -> None:
    hostile = "__import__('os').system('touch hacked')"
    text = GOOD.replace('"add"', json.dumps(hostile)).replace('"q"', json.dumps('q"; import os #'))
    imported = read(tmp_path, text)
    assert imported.fusion[hostile].definition.op == "add"  # type: ignore[attr-defined]
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(
    "target",
    [
        "aten.from_file.default", "os.system", "builtins.eval", "aten.__class__.default", "aten.add.__init__",
        "prims.__builtins__.eval", "aten.add_.Tensor", "aten.no_such_operation.default", "torch.load.default",
        "aten.add.out", "aten.neg_.default", "idgraph.fx.from_json", "x" * 200,
    ],
)  # fmt: skip
def test_an_unknown_operation_is_opaque_and_never_called(tmp_path: Path, target: str) -> None:
    g = graph()
    g["nodes"][8]["target"] = target
    imported = read(tmp_path, g)
    assert target in imported.coverage.opaque  # type: ignore[attr-defined]
    arrays = _arrays(graph())
    with pytest.raises(FrontendError) as caught:
        with_oracle(imported).run(*arrays, target="oracle")  # type: ignore[arg-type]
    assert "node 'neg'" in one_line(caught.value)


def _arrays(g: dict[str, Any]) -> list[Any]:
    from tools.judges.torch_graph import random_inputs

    return [t.numpy() for t in random_inputs(g, 0)]


def test_wrong_arguments_name_the_input(tmp_path: Path) -> None:
    imported: Any = read(tmp_path, GOOD)
    arrays = _arrays(graph())
    with pytest.raises(FrontendError, match="takes 4 arguments, got 3"):
        imported.run(*arrays[:3])
    with pytest.raises(FrontendError, match=r"node 'k': captured for float32\(2, 4, 16, 8\), got float32\(2, 4, 16\)"):
        imported.run(arrays[0], arrays[1][..., 0], *arrays[2:])
    with pytest.raises(FrontendError, match=r"node 'k': .*got float64"):
        imported.run(arrays[0], arrays[1].astype("float64"), *arrays[2:])
    with pytest.raises(FrontendError, match="node 'k': got str"):
        imported.run(arrays[0], "k", *arrays[2:])


def test_sizes_that_agree_with_nothing_are_not_trusted() -> None:
    text = GOOD.replace('"n_nodes":', '"n_nodes":true,"x":')
    with pytest.raises(ParseError, match="n_nodes"):
        parse_program(text.encode())


def mutate(g: Any, choose: random.Random) -> None:
    """One field somewhere in one node becomes something else, or goes."""
    values: list[Any] = [None, True, 0, -1, 3, 2**63, 1.5, "x", [], [0], [[]], {"ref": "q"}, {"dtype": "bool"}, {}]
    place: Any = choose.choice(g["nodes"])
    while True:
        keys: list[Any] = list(place) if hasattr(place, "keys") else list(range(len(place)))
        if not keys:
            return
        key = choose.choice(keys)
        if hasattr(place[key], "__getitem__") and type(place[key]) is not str and place[key] and choose.random() < 0.8:
            place = place[key]
        elif choose.random() < 0.2:
            del place[key]
            return
        else:
            place[key] = choose.choice(values)
            return


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "graphs").glob("*core.json")), ids=lambda p: p.stem)
def test_any_change_ends_in_an_import_or_one_error(path: Path) -> None:
    choose = random.Random(path.stem)
    text = path.read_text()
    for _ in range(60):
        g = json.loads(text)
        mutate(g, choose)
        try:
            import_program(parse_program(json.dumps(g).encode()))
        except (ParseError, FrontendError) as error:
            one_line(error)
