"""Models of transformers, timm and torchvision, made from the configurations of ``models.toml``; none is downloaded."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

TABLE = Path(__file__).with_name("models.toml")
# The models of the docs' table, which `tools.bench.models` times where none are named.
TIMED = ("llama", "phi3", "gpt2", "qwen2", "qwen3", "gemma2", "olmo2", "gpt_neox", "mixtral", "mamba", "bert",
         "modernbert", "t5", "vit", "dinov2", "convnext", "swin", "segformer")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Family:
    """A model: its package, its class there (a registered name of timm's or torchvision's), the class of its
    configuration, and arguments of that, by device. ``kind``: what it reads; ``size``: of pictures on the CPU."""

    name: str
    model: str
    package: str = "transformers"
    config: str = ""
    cpu: dict[str, Any] = field(default_factory=dict[str, Any])
    cuda: dict[str, Any] = field(default_factory=dict[str, Any])
    kind: str = "text"
    size: int = 32


@cache
def families() -> dict[str, Family]:
    """All models by name."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    found: dict[str, Family] = {}
    for name, row in table["models"].items():
        shared = table["sets"].get(row.pop("set", ""), {})
        for device in ("cpu", "cuda"):
            row[device] = {**shared.get(device, {}), **row.get(device, {})}
        found[name] = Family(name, **row)
    return found


def _as_it_is(function: Any) -> Any:
    return function


@cache
def library(name: str) -> Any:
    """A library, which loads its parts when they are asked for; a torchvision whose compiled part is for another torch
    is not asked for its operations."""
    _without_foreign_operations()
    return import_module(name)


@cache
def _without_foreign_operations() -> None:
    torch_library: Any = import_module("torch.library")
    register = torch_library.register_fake

    def lenient(operation: Any, *args: Any, **named: Any) -> Any:
        foreign = isinstance(operation, str) and operation.startswith("torchvision::")
        if not foreign or hasattr(import_module("torch").ops.torchvision, operation.partition("::")[2]):
            return register(operation, *args, **named)
        return _as_it_is

    torch_library.register_fake = lenient


Arguments = Callable[[int, int], dict[str, Any]]


def model_of(name: str, device: str) -> tuple[Any, Arguments]:
    """The model, without dropout, and what makes arguments of a batch and a length (pictures: only of a batch)."""
    torch: Any = import_module("torch")
    family = families()[name]
    more = cast("dict[str, Any]", getattr(family, device))
    config: Any = None
    module = library({"torchvision": "torchvision.models"}.get(family.package, family.package))
    if family.package == "transformers":
        config = getattr(module, family.config)(**more)
        model = getattr(module, family.model)(config)
    elif family.package == "timm":
        model = module.create_model(family.model, num_classes=10, **more)
    else:
        model = module.get_model(family.model, weights=None, num_classes=10, **more)
    model = model.to(device) if device == "cpu" else model.to(device).to(torch.bfloat16)
    parts: list[Any] = list(model.modules())
    for part in parts:
        chance = type(part).__name__.startswith(("Dropout", "StochasticDepth", "DropPath"))
        own: dict[str, Any] = {**vars(part)}
        for name_of, value in own.items():  # rates that functions are called with, too
            if isinstance(value, float) and ("drop" in name_of or (chance and name_of == "p")):
                setattr(part, name_of, 0.0)
    return model, _arguments(family, config, next(model.parameters()).dtype, device)


def _arguments(family: Family, config: Any, dtype: Any, device: str) -> Arguments:
    torch: Any = import_module("torch")

    def ids(batch: int, length: int) -> Any:
        most = getattr(config, "max_position_embeddings", None) or length  # negative: any length
        shape = (batch, min(length, most) if most > 0 else length)
        return torch.randint(5, min(config.vocab_size, 250), shape, device=device)

    def pictures(batch: int, length: int) -> dict[str, Any]:
        size = family.size if device == "cpu" else 224
        own = getattr(config, "image_size", None) if device == "cpu" else None
        size = own if isinstance(own, int) and own < 200 else size
        labels = torch.zeros(batch, dtype=torch.int64, device=device)
        return {"pixel_values": torch.randn(batch, 3, size, size, device=device).to(dtype), "labels": labels}

    def text(batch: int, length: int) -> dict[str, Any]:
        found = ids(batch, length)
        return {"input_ids": found, "labels": found, **({"use_cache": False} if hasattr(config, "use_cache") else {})}

    def sound(batch: int, length: int) -> dict[str, Any]:
        frames = 2 * config.max_source_positions
        heard = torch.randn(batch, config.num_mel_bins, frames, device=device).to(dtype)
        return {"input_features": heard, "labels": ids(batch, length), "use_cache": False}

    return {"pictures": pictures, "text": text, "pairs": text, "sound": sound}[family.kind]


def called_with(model: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    """The logits and the loss; models of timm and torchvision give only the logits."""
    if "pixel_values" not in given:
        found = model(**given)
        return found.logits, found.loss
    own = getattr(model, "_orig_mod", model)
    if hasattr(own, "config"):
        found = model(**given)
        return found.logits, found.loss
    functional: Any = import_module("torch.nn.functional")
    found = model(given["pixel_values"])
    return found, functional.cross_entropy(found.float(), given["labels"])
