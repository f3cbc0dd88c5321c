"""Executors by address: a dask scheduler, a ray cluster, or one of either on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

from idgraph.errors import IdGraphError

P = ParamSpec("P")
T = TypeVar("T")
HINT = "tcp://host:8786 is a dask scheduler, ray://host:10001 a ray cluster; plain dask or ray starts one here"


class RayExecutor(Executor):
    """Each call is a ray task; its future is the task's own."""

    def __init__(self, ray: Any) -> None:
        self._remote = ray.remote

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A future of ``fn(*args, **kwargs)`` on the cluster."""
        return self._remote(fn).remote(*args, **kwargs).future()


@contextlib.contextmanager
def cluster(address: str, workers: int | None = None) -> Generator[Executor]:
    """An executor on the cluster at ``address``; plain "dask" or "ray" starts one here with ``workers`` processes.

    idgraph must be installed on its machines. Raises `IdGraphError` where the package is missing or nobody answers.
    """
    kind = address.partition(":")[0]
    if kind == "ray":
        yield from _ray(address, workers)
    elif kind in ("dask", "tcp", "tls", "ucx"):
        yield from _dask(address, workers)
    else:
        raise IdGraphError(f"{address!r} is not an address of a cluster", hint=HINT)


def _dask(address: str, workers: int | None) -> Generator[Executor]:
    try:
        found: Any = import_module("distributed")
    except ImportError:
        raise IdGraphError("dask.distributed is not installed", hint="pip install distributed") from None
    with contextlib.ExitStack() as stack:
        try:
            where: Any = address
            if address == "dask":
                where = stack.enter_context(
                    found.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
                )
            client = stack.enter_context(found.Client(where, timeout=10, set_as_default=False))
        except (OSError, TimeoutError, ValueError) as error:
            raise IdGraphError(f"no dask scheduler answers at {address!r}: {error}", hint=HINT) from None
        yield client.get_executor(pure=False, retries=1)


def _ray(address: str, workers: int | None) -> Generator[Executor]:
    try:
        found: Any = import_module("ray")
    except ImportError:
        raise IdGraphError("ray is not installed", hint="pip install ray") from None
    options: dict[str, Any] = {"address": address} if address != "ray" else {"num_cpus": workers}
    try:
        found.init(**options, include_dashboard=False if address == "ray" else None, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise IdGraphError(f"no ray cluster answers at {address!r}: {first}", hint=HINT) from None
    try:
        yield RayExecutor(found)
    finally:
        found.shutdown()
