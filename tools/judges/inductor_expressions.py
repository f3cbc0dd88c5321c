"""Write ``inductor.txt``: index expressions that PyTorch Inductor itself simplifies, and what it makes of them.

``python -m tools.judges.inductor_expressions`` compiles a few programs on the CPU and records every call of Inductor's
``simplify_with_ranges``; the file is then read without torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from idgraph.arith import from_sympy

FILE = Path(__file__).with_name("inductor.txt")


def programs(torch: Any) -> list[tuple[Callable[[Any], Any], tuple[Any, ...]]]:
    """Programs whose indices are worth simplifying: windows, shuffles, rotations, pads, reshapes."""
    f = torch.nn.functional
    r = torch.randn
    return [
        (
            lambda x: (
                torch.roll(x, (3, 2), (1, 2)).reshape(2, 4, 7, 4, 7, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 8) + 1
            ),
            (r(2, 28, 28, 8),),
        ),
        (lambda x: f.pixel_shuffle(x, 2) * 2, (r(2, 16, 6, 6),)),
        (lambda x: torch.cat([x[:, 16:], x[:, :16]], 1) + x, (r(4, 32),)),
        (lambda x: f.pad(x, (1, 2, 3, 1))[:, ::2].reshape(-1) * 3, (r(3, 6, 10),)),
        (lambda x: x.reshape(4, 3, 5, 2).permute(3, 1, 0, 2).reshape(6, 20).t().reshape(-1) + 1, (r(120),)),
        (lambda x: f.unfold(x, 3).sum(1), (r(1, 3, 8, 8),)),
        (lambda x: x.view(8, 4, 16).transpose(0, 1).reshape(32, 16).view(-1)[5:301].clone() * 2, (r(512),)),
        (lambda x: f.max_pool2d(x, 2) + f.avg_pool2d(x, 2), (r(1, 3, 8, 8),)),
        (lambda x: torch.flip(x, [0, 1]).reshape(-1).view(7, 9) + 1, (r(9, 7),)),
        (lambda x: f.interpolate(x, scale_factor=2) + 1, (r(1, 2, 5, 5),)),
        (lambda x: x.repeat(2, 3).reshape(-1) + x.repeat(3, 2).reshape(-1), (r(4, 6),)),
    ]


def main() -> None:
    """Compile the programs and write what was seen."""
    torch: Any = importlib.import_module("torch")
    sizevars: Any = importlib.import_module("torch._inductor.sizevars")
    config: Any = importlib.import_module("torch._inductor.config")
    config.force_disable_caches = True
    lines: dict[str, None] = {}
    original = sizevars.SizeVarAllocator._simplify_with_ranges

    def record(self: Any, expr: Any, ranges: dict[Any, Any]) -> Any:
        out = original(self, expr, ranges)
        if all(str(v).isdigit() for v in ranges.values()):
            read = from_sympy(expr)
            spec = {str(k): str(v) for k, v in ranges.items()}
            spec.update({name: ".." for name in sorted(read.names) if name not in spec})
            lines[f"{read} | {' '.join(f'{k}:{v}' for k, v in spec.items())} | {from_sympy(out)}"] = None
        return out

    sizevars.SizeVarAllocator._simplify_with_ranges = record
    for program, args in programs(torch):
        torch._dynamo.reset()
        torch.compile(program)(*args)
    version = torch.__version__.split("+")[0]
    head = (
        f"# made by tools/judges/inductor_expressions.py with torch {version}: expression | ranges | Inductor's form\n"
    )
    FILE.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
