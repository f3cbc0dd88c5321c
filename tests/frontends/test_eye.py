"""The identity matrix, which torch itself numbers in types that its kernels lack."""

from __future__ import annotations

from typing import Any

import pytest

import idgraph as ig

torch: Any = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64])
@pytest.mark.parametrize("columns", [300, 290])
def test_the_identity_is_computed_by_our_kernels(dtype: Any, columns: int) -> None:
    def f(x: Any) -> Any:
        return x + torch.eye(300, columns, dtype=dtype), torch.where(
            torch.eye(columns, dtype=torch.bool), 0.0, x[:columns]
        )

    x = torch.randn(300, columns)
    imported = ig.from_torch(f, (x,))
    assert not imported.coverage.opaque
    results: Any = imported.run(x, target="numpy")
    for found, wanted in zip(results, f(x), strict=True):
        assert torch.equal(torch.as_tensor(found), wanted)
