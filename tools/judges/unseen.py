"""Random expressions of the kinds that schedules make, for comparing simplifiers on inputs that nobody tuned for."""

from __future__ import annotations

import random
import re

from tools.judges.expressions import Bounds, Case

RANGES = {
    "i": Bounds(0, 64), "j": Bounds(0, 8), "k": Bounds(0, 4), "h": Bounds(0, 2), "s": Bounds(-5, 6),
    "n": Bounds(1, None), "m": Bounds(1, None), "p": Bounds(0, "n"), "q": Bounds(0, "m"),
}  # fmt: skip
_CONSTANTS = (2, 4, 8, 16, 32, 64, 3, 6, 12)


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def linear(self, names: list[str]) -> str:
        pick = self.random
        out: list[str] = []
        for name in names:
            c = pick.choice([1, 1, 2, 4, 8, 16, 32, 3, 6, -1])
            out.append(name if c == 1 else f"{name}*{c}")
        if pick.random() < 0.4:
            out.append(str(pick.choice([1, 2, 3, 4, 7, 8, 16, 31, 32])))
        return f"({' + '.join(out)})"

    def constant(self, depth: int) -> tuple[str, str]:
        pick = self.random
        names = pick.sample(["i", "j", "k", "h", "s"], pick.choice([1, 2, 2, 3]))
        if depth == 0:
            return self.linear(names), "linear"
        a = self.constant(depth - 1)[0]
        c, e = pick.choice(_CONSTANTS), pick.choice(_CONSTANTS)
        shapes = [
            (f"({a}//{c})", "div-sum"), (f"({a}%{c})", "mod-sum"), (f"({a}//{c}%{e})", "nested"),
            (f"({a}//{c}*{c} + {a}%{c})", "recombine"), (f"(({a}//{c}%{e})*{c} + {a}%{c})", "recombine"),
            (f"({a} + {self.linear(names)})", "linear"), (f"({a}*{pick.choice([2, 4, 8])} + {names[0]})", "linear"),
            (f"min({a}, {self.constant(depth - 1)[0]})", "minmax"), (f"max({a}, {pick.choice([0, 3, 7])})", "minmax"),
            (f"((({a} + {c})%{c * 2}) + {c})%{c * 2}", "rotation"),
            (f"where({self.linear(names)} < {c}, {a}, {self.constant(depth - 1)[0]})", "where"),
        ]  # fmt: skip
        return pick.choice(shapes)

    def symbolic(self) -> tuple[str, str]:
        pick = self.random
        base = pick.choice(
            [
                "(p*m + q)",
                "(i*n + p)",
                "((i*n + p)*m + q)",
                "(p*4 + k)",
                "(i*n*4 + p*4 + k)",
                "(p + n*h)",
                "(n - 1 - p)",
            ]
        )
        d, e = pick.choice(["n", "m", "(n*m)", "(4*n)", "4", "2", "(2*n)"]), pick.choice(["n", "m", "4", "2"])
        shape = pick.choice(
            [
                f"{base}//{d}",
                f"{base}%{d}",
                f"{base}//{d}*{d} + {base}%{d}",
                f"{base}//{d}%{e}",
                f"({base}//{d}%{e})*{d} + {base}%{d}",
                f"({base} + {d})%{d}",
                f"{base}%{d}//{e}",
            ]
        )
        return shape, "symbolic"


def unseen(count: int, seed: int) -> list[Case]:
    """``count`` different expressions; the minimal form is not known, so each is its own."""
    maker = _Maker(seed)
    out: dict[str, Case] = {}
    while len(out) < count:
        if maker.random.random() < 0.75:
            text, kind = maker.constant(maker.random.choice([1, 1, 2, 2]))
        else:
            text, kind = maker.symbolic()
        names = set(re.findall(r"\b[a-z]\b", text))
        names |= {"n"} if "p" in names else set()
        names |= {"m"} if "q" in names else set()
        out[text] = Case(kind, text, {n: b for n, b in RANGES.items() if n in names}, text)
    return list(out.values())
