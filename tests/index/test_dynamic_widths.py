"""Vector widths of dynamic sizes: legal ones by the definition, at every size tried, and no legal one refused."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

import idgraph as ig


def legal(extent: int, split: int, width: int, at: int) -> bool:
    """Each aligned run of ``width`` steps of loop ``at`` is touched at consecutive places, or not at all."""
    sizes = [-(-extent // split), split]
    if sizes[at] % width:
        return False
    for outer, block in product(range(sizes[1 - at]), range(sizes[at] // width)):
        lanes = [block * width + k for k in range(width)]
        places = [(outer * split + x) if at else (x * split + outer) for x in lanes]
        inside = [p < extent for p in places]
        if any(inside) != all(inside):
            return False
        if all(inside) and (places[0] % width or any(b - a != 1 for a, b in pairwise(places))):
            return False
    return True


@pytest.mark.parametrize("multiple", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("split", [2, 4, 6, 8, 12, 16])
def test_widths_are_those_that_all_sizes_allow(multiple: int, split: int) -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=multiple, multiple_of=multiple)
    y = f.output(f.input("a", shape=(n,)) + 1.0)
    y.split(0, split)
    assert y.definition is not None
    write = ig.IdModel(f).write(y.definition)
    wanted = max(w for w in (1, 2, 4) if all(legal(multiple * k, split, w, 1) for k in range(1, 40)))
    assert write.vector_width("i1") == wanted
