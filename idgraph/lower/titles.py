"""Tensors as the user knows them."""

from __future__ import annotations

from idgraph.ir import Tensor, is_integer


def index_title(t: Tensor) -> str:
    """An index tensor as the user knows it: with the inputs that a computed one is made of.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> i = f.input("i", shape=(4,), dtype="int64")
    >>> index_title(i), index_title(i + 1)
    ('i', 't1 (made of i)')
    """
    seen, open_ = {t}, [t]
    while open_:
        e = open_.pop().definition
        fresh = [x for x in e.inputs if x not in seen] if e is not None else []
        seen.update(fresh)
        open_ += fresh
    given = [x.name for x in t.fusion.inputs if x in seen and is_integer(x.dtype) and x is not t]
    if not given:
        return t.name
    e = t.definition
    moved = e is not None and e.op == "where" and e.args[-1] == -1  # see `idgraph.rewrite.read_at`
    return f"{t.name} (made of {', '.join(given)}{'; -1 where that is out of range' if moved else ''})"
