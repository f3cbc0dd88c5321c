"""Which of numba's passes the functions of kernels go through."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

# Passes of numba over what no kernel or function of kernels has: closures, ``with``, ``raise``, tests for None, literal
# containers, arrays as operands. Without them the machine code is the same, and made in three quarters of the time.
IDLE = frozenset({
    "WithLifting", "InlineClosureLikes", "RewriteSemanticConstants", "DeadBranchPrune", "RewriteDynamicRaises",
    "MakeFunctionToJitFunction", "InlineInlinables", "FindLiterallyCalls", "LiteralUnroll",
    "LiteralPropagationSubPipelinePass", "InlineOverloads", "NopythonRewrites", "NoPythonSupportedFeatureValidation",
    "DumpParforDiagnostics",
})  # fmt: skip


@cache
def short_pipeline() -> Any:
    """numba's compiler without the passes in `IDLE`, for the functions that kernels call.

    A process compiles up to 80 of them before its kernels.
    """
    base: Any = import_module("numba.core.compiler")

    class Short(base.CompilerBase):
        def define_pipelines(self) -> list[Any]:
            made = base.DefaultPassBuilder.define_nopython_pipeline(self.state)
            made.passes = [(p, why) for p, why in made.passes if p.__name__ not in IDLE]
            made.finalize()
            return [made]

    return Short
