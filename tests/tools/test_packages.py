"""The extras bring the right numba.cuda, and a compiler that works where there is no GPU."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import numba
from numba import cuda
ptx, _ = cuda.compile_ptx(lambda a: None, (numba.float32[::1],), cc=(9, 0))
print(cuda.__file__)
print(".target sm_90" in ptx)
"""


def test_numba_cuda_is_the_package_of_that_name() -> None:
    """numba ships an old copy of its own; numba-cuda redirects the import, and `cu13` brings the compiler libraries."""
    shown = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "/numba_cuda/" in shown[0]
    assert shown[1] == "True"
