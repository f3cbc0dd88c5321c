"""Whole models behind torch.compile, beside eager mode and Inductor: ``python -m tools.bench.models --device cpu``.

Each model is made from a configuration with random weights, never downloaded, and runs in a process of its own with a
limit of time. A row has milliseconds a call (the median, and the least), seconds of the first call, the largest error
against eager mode, and for CUDA the most memory that a step takes, of ``eager``, ``inductor`` and ``idgraph``.

``--device cpu``: two narrow layers in float32; ``cuda``: the sizes of the table in the docs in bfloat16. ``--models``
selects by a part of the name. The JSON names the machine; it is written anew after each row, so that a run that is cut
short leaves what it has.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

Modes = tuple[str, ...]
MODES: Modes = ("eager", "inductor", "idgraph")
PARTS: Modes = ("forward", "step")


@dataclass(frozen=True, slots=True)
class Family:
    """A model of transformers: its configuration and class, and the arguments of the configuration, by device."""

    config: str
    model: str
    cpu: dict[str, Any]
    cuda: dict[str, Any]
    kind: Literal["text", "pictures"] = "text"


def _decoder(**more: Any) -> dict[str, Any]:
    return {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 128, "pad_token_id": 0, **more,
    }  # fmt: skip


def _wide(**more: Any) -> dict[str, Any]:
    return {
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 4, "num_attention_heads": 16,
        "num_key_value_heads": 8, "vocab_size": 32000, "pad_token_id": 0, **more,
    }  # fmt: skip


_ENCODER: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
    "pad_token_id": 0,
}  # fmt: skip
_BASE: dict[str, Any] = {"num_hidden_layers": 4}
_PICTURE: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_GPT2: dict[str, Any] = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 257, "n_positions": 64}
_T5: dict[str, Any] = {
    "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 256,
    "decoder_start_token_id": 0,
}  # fmt: skip
_MIXTRAL: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
_CONVNEXT: dict[str, Any] = {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2}
_SWIN: dict[str, Any] = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
                         "window_size": 4}  # fmt: skip
_SEGFORMER: dict[str, Any] = {
    "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32], "patch_sizes": [7, 3],
    "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
}  # fmt: skip
_MAMBA: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 256, "state_size": 8}
FAMILIES: dict[str, Family] = {
    "llama": Family("LlamaConfig", "LlamaForCausalLM", _decoder(), _wide()),
    "phi3": Family("Phi3Config", "Phi3ForCausalLM", _decoder(), _wide()),
    "gpt2": Family("GPT2Config", "GPT2LMHeadModel", _GPT2, {"n_layer": 4}),
    "qwen2": Family("Qwen2Config", "Qwen2ForCausalLM", _decoder(), _wide()),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", _decoder(head_dim=16), _wide()),
    "gemma2": Family("Gemma2Config", "Gemma2ForCausalLM", _decoder(head_dim=16), _wide(head_dim=128)),
    "olmo2": Family("Olmo2Config", "Olmo2ForCausalLM", _decoder(), _wide()),
    "gpt_neox": Family("GPTNeoXConfig", "GPTNeoXForCausalLM", _ENCODER, {"hidden_size": 1024, "intermediate_size": 4096,
                       "num_hidden_layers": 4, "num_attention_heads": 16}),
    "mixtral": Family("MixtralConfig", "MixtralForCausalLM", _decoder(**_MIXTRAL), _wide(**_MIXTRAL)),
    "mamba": Family("MambaConfig", "MambaForCausalLM", _MAMBA, {"hidden_size": 768, "num_hidden_layers": 4}),
    "bert": Family("BertConfig", "BertForMaskedLM", _ENCODER, _BASE),
    "modernbert": Family("ModernBertConfig", "ModernBertForMaskedLM",
                         {**_ENCODER, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
                         _BASE),
    "t5": Family("T5Config", "T5ForConditionalGeneration", _T5, {"num_layers": 4, "decoder_start_token_id": 0}),
    "vit": Family("ViTConfig", "ViTForImageClassification", _PICTURE, _BASE, "pictures"),
    "dinov2": Family("Dinov2Config", "Dinov2ForImageClassification", _PICTURE, _BASE, "pictures"),
    "convnext": Family("ConvNextConfig", "ConvNextForImageClassification", _CONVNEXT, {}, "pictures"),
    "swin": Family("SwinConfig", "SwinForImageClassification", _SWIN, {}, "pictures"),
    "segformer": Family("SegformerConfig", "SegformerForImageClassification", _SEGFORMER, {}, "pictures"),
}  # fmt: skip


@dataclass(slots=True)
class Row:
    """A model in one mode: ``ms`` and ``least_ms`` a call, ``first_s`` of the first one, ``error`` relative to the
    largest value of eager mode, ``peak_mib``; or what ``failed``."""

    model: str
    part: str
    mode: str
    ms: float = math.nan
    least_ms: float = math.nan
    first_s: float = math.nan
    error: float = math.nan
    peak_mib: float = math.nan
    failed: str = ""


@dataclass(slots=True)
class Table:
    """All rows, with the machine that made them."""

    machine: dict[str, str]
    rows: list[Row] = field(default_factory=list[Row])

    def text(self) -> str:
        """A row a model and part: eager / inductor / idgraph."""
        head = f"{'model':12} {'part':8} {'ms: eager':>9} {'inductor':>9} {'idgraph':>9}"
        lines = [f"{head} {'first s':>17} {'error':>10}"]
        found = {(r.model, r.part, r.mode): r for r in self.rows}
        for model, part in dict.fromkeys((r.model, r.part) for r in self.rows):
            of = [found.get((model, part, m), Row(model, part, m, failed="not run")) for m in MODES]
            times = " ".join(f"{r.ms:9.3f}" for r in of)
            firsts = " / ".join(f"{r.first_s:6.1f}" for r in of[1:])
            why = "; ".join(f"{r.mode}: {r.failed}" for r in of if r.failed)
            lines.append(f"{model:12} {part:8} {times} {firsts:>17} {of[2].error:10.2g}  {why}".rstrip())
        for part in PARTS:
            pairs = [(found.get((m, part, "inductor")), found.get((m, part, "idgraph"))) for m in FAMILIES]
            ratios = [a.ms / b.ms for a, b in pairs if a is not None and b is not None and a.ms > 0 and b.ms > 0]
            if ratios:
                lines.append(f"{part}: Inductor over idgraph, geometric mean {statistics.geometric_mean(ratios):.2f}, "
                             f"least {min(ratios):.2f}")  # fmt: skip
        return "\n".join(lines)


def _as_it_is(function: Any) -> Any:
    return function


def _transformers() -> Any:
    """The library; a torchvision whose compiled part is for another torch is not asked for its operations."""
    library: Any = import_module("torch.library")
    register = library.register_fake

    def lenient(name: Any, *args: Any, **named: Any) -> Any:
        foreign = isinstance(name, str) and name.startswith("torchvision::")
        if not foreign or hasattr(import_module("torch").ops.torchvision, name.partition("::")[2]):
            return register(name, *args, **named)
        return _as_it_is

    library.register_fake = lenient
    return import_module("transformers")


def _made(name: str, device: str) -> tuple[Any, Callable[[], dict[str, Any]]]:
    """The model, and what makes its arguments."""
    torch: Any = import_module("torch")
    transformers: Any = _transformers()
    family = FAMILIES[name]
    config = getattr(transformers, family.config)(**(family.cpu if device == "cpu" else family.cuda))
    model = getattr(transformers, family.model)(config).to(device)
    model = model if device == "cpu" else model.to(torch.bfloat16)
    dtype = next(model.parameters()).dtype
    if family.kind == "pictures":
        size, count = (getattr(config, "image_size", 32) if device == "cpu" else 224), (2 if device == "cpu" else 32)
        pictures = torch.randn(count, 3, size, size, device=device).to(dtype)
        labels = torch.zeros(count, dtype=torch.int64, device=device)
        return model, lambda: {"pixel_values": pictures, "labels": labels}
    batch, length = (2, 16) if device == "cpu" else (8, 1024)
    length = min(length, getattr(config, "max_position_embeddings", length))
    ids = torch.randint(3, min(config.vocab_size, 250), (batch, length), device=device)
    cached = {} if name in ("bert", "modernbert") else {"use_cache": False}
    return model, lambda: {"input_ids": ids, "labels": ids, **cached}


def measured(name: str, part: str, mode: str, device: str, seconds: float) -> Row:
    """One model in one mode, in this process."""
    torch: Any = import_module("torch")
    torch.manual_seed(0)
    model, arguments = _made(name, device)
    model.train(part == "step")
    for m in model.modules():
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
    given = arguments()
    if mode == "idgraph":
        import_module("idgraph.frontends.torch_compile")

    def run(call: Any) -> list[Any]:
        if part == "forward":
            with torch.no_grad():
                return [call(**given).logits]
        model.zero_grad(set_to_none=True)
        loss = call(**given).loss
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    wanted = [x.clone() for x in run(model)]
    called = model if mode == "eager" else torch.compile(model, backend=mode)
    began = time.perf_counter()
    found = run(called)
    wait()
    row = Row(name, part, mode, first_s=round(time.perf_counter() - began, 3))
    row.error = max((_error(x, y) for x, y in zip(found, wanted, strict=True)), default=0.0)
    for _ in range(3):
        run(called)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < 5 or (time.perf_counter() < until and len(times) < 300):
        wait()
        began = time.perf_counter()
        run(called)
        wait()
        times.append(time.perf_counter() - began)
    row.ms, row.least_ms = round(statistics.median(times) * 1e3, 4), round(min(times) * 1e3, 4)
    if device == "cuda":
        row.peak_mib = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return row


def _error(x: Any, y: Any) -> float:
    size = float(y.double().abs().max()) or 1.0
    return float((x.double() - y.double()).abs().max()) / size


def _machine(device: str) -> dict[str, str]:
    torch: Any = import_module("torch")
    found = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
    found |= {"torch": torch.__version__, "threads": str(torch.get_num_threads())}
    found |= {"transformers": _transformers().__version__}
    return found | ({"gpu": torch.cuda.get_device_name()} if device == "cuda" else {})


def _in_process(name: str, part: str, mode: str, device: str, seconds: float, limit: float) -> Row:
    command = [sys.executable, "-m", "tools.bench.models", "--device", device, "--seconds", str(seconds), "--one", name,
               part, mode]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return Row(name, part, mode, failed=f"not finished in {limit:.0f} s")
    lines = done.stdout.strip().splitlines()
    left = [x for x in done.stderr.splitlines() if "left to eager mode" in x]
    if done.returncode or not lines:
        why = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Row(name, part, mode, failed=why[:200])
    row = Row(**json.loads(lines[-1]))
    row.failed = left[0].strip()[:200] if left else ""
    return row


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--models", default="", help="parts of names, with commas between them")
    parser.add_argument("--parts", default="forward,step")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--seconds", type=float, default=2.0, help="of steady calls for each row")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each process")
    parser.add_argument("--total", type=float, default=math.inf, help="seconds after which no process is started")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=3, metavar=("MODEL", "PART", "MODE"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one is not None:
        name, part, mode = cast("tuple[str, str, str]", args.one)
        print(json.dumps(asdict(measured(name, part, mode, args.device, args.seconds))))
        return 0
    words = [w for w in args.models.split(",") if w]
    names = [n for n in FAMILIES if not words or any(w in n for w in words)]
    jobs = [(n, p, m) for n in names for p in PARTS if p in args.parts.split(",") for m in args.modes.split(",")]
    table, began = Table(_machine(args.device)), time.perf_counter()
    for number, (name, part, mode) in enumerate(jobs, 1):
        if time.perf_counter() - began > args.total:
            print(f"{len(jobs) - number + 1} rows are left: the time is over", file=sys.stderr)
            break
        row = _in_process(name, part, mode, args.device, args.seconds, args.limit)
        table.rows.append(row)
        spent = time.perf_counter() - began
        print(f"[{number}/{len(jobs)}] {spent:5.0f} s  {name} {part} {mode}: {row.failed or f'{row.ms} ms'}",
              file=sys.stderr, flush=True)  # fmt: skip
        if args.json is not None:
            args.json.write_text(json.dumps(asdict(table), indent=1) + "\n", encoding="utf-8")
    print(json.dumps(table.machine))
    print(table.text())
    return int(any(r.failed for r in table.rows if r.mode == "idgraph"))


if __name__ == "__main__":
    raise SystemExit(main())
