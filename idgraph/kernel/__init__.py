"""The kernel IR: loops, conditions, loads, computations, stores; definitions and uses; shared memory; the text form."""

from idgraph.errors import suggesting
from idgraph.kernel.ir import Kernel
from idgraph.kernel.parser import parse

__all__ = ["Kernel", "parse"]

__getattr__ = suggesting(__name__)
