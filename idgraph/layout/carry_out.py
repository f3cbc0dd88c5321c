"""The formats that an automatic schedule gives tensors: carried out, noted, and taken back by the next one."""

from __future__ import annotations

from collections.abc import Iterable

from idgraph.ir import SCANS, SCATTERS, Fusion, Tensor
from idgraph.ir.decisions import Format
from idgraph.layout.inference import Formats, demanded


def take_back(fusion: Fusion) -> None:
    """Forget the formats that an earlier automatic schedule chose; those of the user stay."""
    by_name = {t.name: t for t in fusion.tensors} if fusion.formats else {}
    for note in fusion.formats:
        t = by_name.get(note.tensor)
        if t is None or demanded(t) or not any(s.name == "set_allocation" for s in t.log):
            continue
        t.forget("set_allocation")
        t.domain.allocation = t.axes
        t.domain.strides = (None,) * len(t.axes)
    fusion.formats = ()
    fusion.touch()


def lay_out(fusion: Fusion, tensors: Iterable[Tensor]) -> None:
    """Lay ``tensors`` out as `infer` decides, where their layout differs, and note it in ``fusion.formats``.

    The result of a scatter has its operand's layout, as it may be updated in place; that of a scan follows its axis.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(2, 3), strides=(1, 2)) * 2.0)
    >>> lay_out(f, [t])
    >>> print(t.allocation, f.formats[0].told.splitlines()[0])
    (I3[3], I2[2]) t1 (2, 3): strides (1, 2), a hint from x
    >>> take_back(f)
    >>> t.allocation
    (I2[2], I3[3])
    """
    formats = Formats()
    for t in tensors:
        e = t.definition
        if e is None or e.op in SCATTERS or e.op in SCANS or t.ndim < 2:
            continue
        d = formats.decide(t)
        wanted = tuple(t.axes[a] for a in d.order)
        if d.kind != "hint" or wanted == t.allocation:
            continue
        t.set_allocation(wanted)
        fusion.formats = (*fusion.formats, Format(t.name, d.order, d.explain(), t.log[-1].at))
