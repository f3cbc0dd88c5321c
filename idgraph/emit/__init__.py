"""Kernels: one plan (loops, lets, predicates, loads, stores, buffers), printed for four targets and run."""

from idgraph.emit.cuda import compile_ptx
from idgraph.emit.plan import Kernel, Plan
from idgraph.emit.program import Program, Target, emit

__all__ = ["Kernel", "Plan", "Program", "Target", "compile_ptx", "emit"]
