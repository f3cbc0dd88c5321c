"""Captured graphs of real sizes as the same graphs of smaller sizes, where memory or time do not suffice for the real.

Sizes are replaced number by number; torch then runs the graph without values, which says whether the numbers still fit
together and what shapes and strides the results have.
"""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tools.judges.torch_graph import call

_LLAMA = {4096: 256, 4097: 257, 8192: 512, 32: 8, 8: 2, 64: 16, 128: 32, 1024: 64, 14336: 896, 128256: 1002}
# Program -> size captured -> a smaller one. Where one number means two sizes (positions and channels), both shrink.
SMALLER: dict[str, dict[int, int]] = {
    "ce_gpt2_real": {32768: 256},
    "ce_llama3_real": {4096: 64, 4095: 63, 8190: 126},
    "hf_bert_1layer_lm_real": {16: 2, 192: 24, 512: 32, 8192: 64, 30522: 500},
    "hf_gpt2_1layer_lm_real": {1024: 64, 1025: 65, 4096: 256, 50257: 503},
    "hf_llama7b_attn_real": _LLAMA,
    "hf_llama8b_1layer_lm_real": _LLAMA,
    "hf_llama8b_attn_real": _LLAMA,
    "llmc_loss_ign_m1_real": {1024: 64, 32768: 2048, 50257: 1009},
    "qkv_rope_gqa_real": _LLAMA | {6144: 384},
    "qkv_split_real": _LLAMA | {12288: 768},
}


def smaller(graph: dict[str, Any], sizes: dict[int, int] | None = None) -> dict[str, Any] | None:
    """The graph with other sizes, by default those of `SMALLER`; None for a program that has none there.

    Raises ValueError where torch gives a result another shape than the numbers replaced say.
    """
    sizes = SMALLER.get(graph["case"]) if sizes is None else sizes
    if sizes is None:
        return None
    made = copy.deepcopy(graph)
    values: dict[str, Any] = {}
    with FakeTensorMode():
        for node in made["nodes"]:
            node["args"], node["kwargs"] = _replaced(node["args"], sizes), _replaced(node["kwargs"], sizes)
            if node["op"] == "output":
                continue
            if node["op"] == "placeholder":
                values[node["name"]] = _placeholder(node["out"], sizes)
            else:
                values[node["name"]] = call(node, values)
            node["out"] = _told(node["name"], values[node["name"]], node["out"], sizes)
    return made


def _replaced(value: Any, sizes: dict[int, int]) -> Any:
    if isinstance(value, dict):
        return {k: _replaced(v, sizes) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_replaced(v, sizes) for v in cast("list[Any]", value)]
    return sizes.get(value, value) if type(value) is int else value


def _placeholder(out: dict[str, Any], sizes: dict[int, int]) -> torch.Tensor:
    """An empty tensor whose axes lie in memory in the order captured, without gaps."""
    shape = _replaced(out["shape"], sizes)
    strides = [0] * len(shape)
    step = 1
    for p in sorted(range(len(shape)), key=lambda p: (out["stride"][p], -p)):
        if out["stride"][p]:
            strides[p], step = step, step * shape[p]
    return torch.empty_strided(shape, strides, dtype=getattr(torch, out["dtype"]))


def _told(name: str, value: Any, old: Any, sizes: dict[int, int]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_told(name, v, o, sizes) for v, o in zip(cast("list[Any]", value), old, strict=True)]
    if not isinstance(value, torch.Tensor):
        return old
    shape = list(value.shape)
    if shape != _replaced(old["shape"], sizes):
        raise ValueError(f"{name} has shape {shape}, {old['shape']} was captured: no such replacement of sizes")
    return old | {"shape": shape, "stride": list(value.stride()), "storage_offset": int(value.storage_offset())}
