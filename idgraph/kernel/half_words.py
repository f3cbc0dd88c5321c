"""Words of two 16-bit floats: what holds one is not read as a single float, and the other way round."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.kernel.defuse import defs, operands_of
from idgraph.kernel.malformed import malformed_error
from idgraph.kernel.statements import (
    Compute,
    ExtractHalf,
    Half2Op,
    Local,
    RegisterArray,
    Select,
    Stmt,
    VectorLoad,
    VectorStore,
    walk,
)


def check_words(name: str, body: Sequence[Stmt]) -> None:
    """Raise `EmitError` for a statement that takes a word for an element, or puts one into an array of elements."""
    arrays: dict[str, bool] = {}
    words: dict[str, bool] = {}
    for s in walk(tuple(body)):
        if isinstance(s, RegisterArray):
            arrays[s.name] = words[s.name] = s.words
            continue
        given = {x.name: words.get(x.name, False) for x in operands_of(s) if isinstance(x, Local)}
        match s:
            case Half2Op(op=op):
                wanted, made = op != "pack", True
            case ExtractHalf():
                wanted, made = True, False
            case VectorLoad(pairs=pairs):
                wanted, made = False, pairs
            case VectorStore(pairs=pairs):
                wanted, made = pairs, False
            case Compute(op="cast") | Select():  # a copy
                wanted = made = any(given.values())
            case _:
                wanted = made = False
        for x, word in given.items():
            if word != wanted:
                raise malformed_error(name, f"{x} is {_called(word)}, read as {_called(wanted)}", s)
        for x in defs(s):
            if arrays.get(x.name, made) != made:
                raise malformed_error(
                    name, f"{x.name} has {_called(arrays[x.name])} in each element, {_called(made)} is put there", s
                )
            words[x.name] = made


def _called(word: bool) -> str:
    return "a word of two floats" if word else "one number"
