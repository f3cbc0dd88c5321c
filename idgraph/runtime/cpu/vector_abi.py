"""Arguments that a form without a branch does not reach, in loops that stay vectors.

A call in a branch keeps LLVM from making vectors of a loop. `range_guarded_call` is a function with forms for vectors
of its own, which LLVM's loop vectorizer finds by their names (the attribute "vector-function-abi-variant"). A form
compares all numbers of a vector and returns the second operand as it is, unless one number is far: then each far
number goes to C's function. The forms are inlined when the loops are vectors (`inline_vector_variants`).

Which of numba's passes the functions of kernels go through.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

WIDTHS: Final = (2, 4, 8)  # float64 numbers of vectors, to 512 bits
PREFIX: Final = "idgraph_far_"


def range_guarded_call(library: str, limit: float) -> Any:
    """A function of two float64, x and y, for kernels: C's function ``library`` of x where abs(x) is at least
    ``limit``, y where it is less or NaN."""
    intrinsic: Any = import_module("numba.extending").intrinsic
    types: Any = import_module("numba.types")

    def beyond(typingctx: Any, x: Any, y: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.call(_function(builder.module, library, limit), args)

        return types.float64(types.float64, types.float64), codegen

    return intrinsic(beyond)


def inline_vector_variants(library: Any) -> None:
    """Let a library of numba's inline forms for vectors when its loops are vectors."""
    optimize: Any = library._optimize_final_module
    llvm: Any = import_module("llvmlite.binding")

    def optimized() -> None:
        optimize()
        module = library._final_module
        if any(f.name.startswith(PREFIX) for f in module.functions):
            passes = llvm.create_new_module_pass_manager()
            passes.add_always_inliner_pass()
            passes.add_simplify_cfg_pass()
            passes.add_instruction_combine_pass()
            passes.run(module, library._codegen._pass_builder())

    library._optimize_final_module = optimized


def _function(module: Any, library: str, limit: float) -> Any:
    """The function in ``module``, with its forms for vectors."""
    ir: Any = import_module("llvmlite.ir")
    name = PREFIX + library
    if name in module.globals:
        return module.globals[name]
    number, byte = ir.DoubleType(), ir.IntType(8).as_pointer()
    made = _declared(module, name, number, "noinline")
    _define_scalar(module, made, library, limit)
    forms = [_declared(module, f"{name}_{n}", ir.VectorType(number, n), "alwaysinline") for n in WIDTHS]
    for n, form in zip(WIDTHS, forms, strict=True):
        _define_vector(module, form, made, n, limit)
    variants = ",".join(f"_ZGV_LLVM_N{n}vv_{name}({form.name})" for n, form in zip(WIDTHS, forms, strict=True))
    # llvmlite knows no attribute with a value; it writes each one as it is
    set[str].add(made.attributes, f'"vector-function-abi-variant"="{variants}"')
    _keep(module, [f.bitcast(byte) for f in forms])
    return made


def _declared(module: Any, name: str, number: Any, inlined: str) -> Any:
    ir: Any = import_module("llvmlite.ir")
    made = ir.Function(module, ir.FunctionType(number, [number, number]), name)
    made.linkage = "linkonce_odr"
    made.attributes.add(inlined)
    made.attributes.add("nounwind")
    return made


def _is_far(builder: Any, x: Any, limit: float, count: int) -> Any:
    ir: Any = import_module("llvmlite.ir")
    name = "llvm.fabs.f64" if count == 1 else f"llvm.fabs.v{count}f64"  # llvmlite has no name for that of vectors
    known = builder.module.globals.get(name)
    absolute = ir.Function(builder.module, ir.FunctionType(x.type, [x.type]), name) if known is None else known
    size = builder.call(absolute, [x])
    bound = ir.Constant(x.type, limit if count == 1 else [limit] * count)
    return builder.fcmp_ordered(">=", size, bound)


def _define_scalar(module: Any, made: Any, library: str, limit: float) -> None:
    ir: Any = import_module("llvmlite.ir")
    builder = ir.IRBuilder(made.append_basic_block())
    x, y = made.args
    slow, fast = made.append_basic_block(), made.append_basic_block()
    builder.cbranch(_is_far(builder, x, limit, 1), slow, fast)
    builder.position_at_end(fast)
    builder.ret(y)
    builder.position_at_end(slow)
    known = module.globals.get(library)
    called = ir.Function(module, ir.FunctionType(x.type, [x.type]), library) if known is None else known
    builder.ret(builder.call(called, [x]))


def _define_vector(module: Any, made: Any, scalar: Any, count: int, limit: float) -> None:
    ir: Any = import_module("llvmlite.ir")
    builder = ir.IRBuilder(made.append_basic_block())
    x, y = made.args
    bits = builder.bitcast(_is_far(builder, x, limit, count), ir.IntType(count))
    slow, fast = made.append_basic_block(), made.append_basic_block()
    builder.cbranch(builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)), slow, fast)
    builder.position_at_end(fast)
    builder.ret(y)
    builder.position_at_end(slow)
    out = y
    for k in range(count):
        at = ir.Constant(ir.IntType(32), k)
        one = builder.call(scalar, [builder.extract_element(x, at), builder.extract_element(y, at)])
        out = builder.insert_element(out, one, at)
    builder.ret(out)


def _keep(module: Any, pointers: list[Any]) -> None:
    """Keep functions that nothing calls yet until loops are vectors: a module has one list of them."""
    ir: Any = import_module("llvmlite.ir")
    name = "llvm.compiler.used"
    made = module.globals.get(name)
    if made is None:
        made = ir.GlobalVariable(module, ir.ArrayType(pointers[0].type, 0), name)
        made.linkage, made.section = "appending", "llvm.metadata"
    else:
        pointers = [*made.initializer.constant, *pointers]
    made.value_type = ir.ArrayType(pointers[0].type, len(pointers))
    made.initializer = ir.Constant(made.value_type, pointers)


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
