"""Tensors that share memory: without devices a write to a view is seen in what it views, whatever DTensor copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy.typing as npt

from idgraph.check.dtensor_decide import Operand, Traced, differences
from idgraph.check.dtensor_form import DeviceElement
from idgraph.check.dtensor_simulation import numpy_of, unknown_reduction, without_modes


def _by_identity() -> Any:
    from torch.utils.weak import WeakIdKeyDictionary

    return WeakIdKeyDictionary()


@dataclass(slots=True)
class SharedMemory:
    """For each DTensor that is alive, the tensor that it would be without devices: views of one memory are views."""

    plain: Any = field(default_factory=_by_identity)

    def run(self, func: Any, flat: Sequence[Any], spec: Any, wholes: Sequence[npt.NDArray[Any]], made: Any) -> None:
        """Run an operation as without devices, beside ``made``, its result on DTensors."""
        import torch
        from torch.distributed.tensor import DTensor
        from torch.utils import _pytree as tree

        given, values = list(flat), iter(wholes)
        with without_modes(), torch.no_grad():
            for k, t in enumerate(flat):
                if isinstance(t, DTensor):
                    given[k] = self._plain(t, next(values))
                elif hasattr(t, "_local_tensors"):  # a number that all devices have
                    given[k] = t._local_tensors[0]
            args, kwargs = tree.tree_unflatten(given, spec)
            results = func(*args, **kwargs)
        for have, meant in zip(_leaves(made), _leaves(results), strict=False):
            if isinstance(have, DTensor) and have not in self.plain:
                self.plain[have] = meant

    def _plain(self, t: Any, whole: npt.NDArray[Any]) -> Any:
        import torch

        if t not in self.plain:
            own = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
            memory = own.as_strided((own.untyped_storage().nbytes() // own.element_size(),), (1,))
            places = torch.arange(memory.numel()).as_strided(t.shape, t.stride())
            memory[places] = cast("Any", torch).from_numpy(whole).to(t.dtype)  # elements may share one place
            self.plain[t] = own
        return self.plain[t]

    def stale(self, written: Sequence[Any], trace: Traced) -> tuple[Any, DeviceElement] | None:
        """A DTensor whose memory is that of ``written`` without devices, and one of its elements that is another."""
        memory = {self.plain[t].untyped_storage().data_ptr() for t in written}
        for t, plain in list(self.plain.items()):
            if plain.untyped_storage().data_ptr() in memory and unknown_reduction(t.placements) is None:
                found = differences(Operand.of(t, trace), numpy_of(plain), trace.mesh)
                if found is not None:
                    return t, found
        return None

    def forget(self) -> None:
        """Nothing is known of what shares memory, after an operation whose result is not that without devices."""
        self.plain.clear()


def _leaves(value: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as tree

    return [x for x in tree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def written_tensors(func: Any, args: Sequence[Any], kwargs: Any) -> list[Any]:
    """The DTensors that an operation writes, by its schema."""
    from torch.distributed.tensor import DTensor

    arguments = func._schema.arguments
    given = [*zip(arguments, args, strict=False), *((a, kwargs[a.name]) for a in arguments if a.name in kwargs)]
    return [
        t for a, value in given if a.alias_info is not None and a.alias_info.is_write
        for t in _leaves(value) if isinstance(t, DTensor)
    ]  # fmt: skip
