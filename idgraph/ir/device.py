"""Devices as data: rates of memory, arithmetic and launches, as kernels reach them and not as data sheets state.

Targets as data: what a machine and its language have. Lowering, passes and printers ask the record, not the name.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Final, Literal, cast

from idgraph.display import Printed
from idgraph.errors import IdGraphError, arguments, one_of, short_repr
from idgraph.ir.limits import check_name

Kind = Literal["cuda", "cpu"]
LARGEST = 1 << 20  # characters of a device's JSON
MOST = 1 << 80  # of any number of a device
DIVISORS = (
    "bandwidth", "cache_bandwidth", "processors", "loads", "atomics", "warp", "vector_bytes", "sector", "line", "banks",
    "bank_bytes", "block_threads",
)  # fmt: skip
POWERS = ("warp", "vector_bytes", "sector", "line", "banks", "bank_bytes")


@dataclass(frozen=True, slots=True)
class Device(Printed):
    """A machine that runs kernels. Rates are per second and for the whole device.

    ``bandwidth``: bytes that a copy moves, read and written together. ``cache_bandwidth``: bytes between the last cache
    and the processors. ``cache``: bytes of that cache. ``processors``: multiprocessors or cores. ``launch_us``: the
    overhead of a launch. ``flops``: by dtype of the arithmetic; ``special``: division, exp, log, sin and the
    like, by dtype; on a CPU also functions, as "exp float32", and those of a library that no vector unit does, as
    "libm float64" or "libm"; ``loads``: accesses that cores start; ``atomics``: elements updated;
    ``line_atomics``: updates of one cache line, which wait for each other (0: no limit); ``scalar``: steps of
    loops that a compiler makes no vectors of (0: no limit); ``levels``: caches nearer than ``cache``, the nearest
    first, with the bytes and the bandwidth of all processors' together. ``threads``, ``blocks``, ``registers`` (of 32
    bits) and ``shared`` (bytes) are limits of a multiprocessor (0: none), ``cc`` is its capability, ``clock`` its
    cycles a second (0: not known).

    ``warp``: threads that run together. ``vector_bytes``: the widest access of one thread. ``sector``: bytes that
    memory moves at least, ``line``: bytes of a cache line. ``banks``: those of shared memory, each of which serves
    ``bank_bytes`` at a time. These six are powers of two. ``block_threads``: the most in a block.
    ``latency``: seconds until a load from memory arrives that nothing hides (0: not known).
    ``products``: operations of a library's matrix product, by dtype; as "bfloat16 unaligned" of one whose rows begin at
    addresses that no widest access divides (none: as fast). ``thread_registers``: the most of a thread.
    ``static_shared``: bytes of shared memory that a block has without asking for more. ``coordinate_steps``:
    operations of int32 that find one coordinate of a thread's number, and its part of an address: a division by a
    constant, the rest, a product and a sum. ``exchange_cycles``: those of a multiprocessor in which a warp passes on
    32 bits of each thread, for each time that half of the threads are left to combine. ``line_reads``,
    ``line_writes``: lines that warps read or write parts of (0: no limit). ``own_bandwidth``: what one processor
    reaches by itself, as times its part of all.

    >>> import idgraph as ig
    >>> h = ig.cost.devices["H200"]
    >>> h.kind, h.processors
    ('cuda', 132)
    >>> h.rate("float32", special=False) > h.rate("float64", special=False), Device.from_json(h.to_json()) == h
    (True, True)
    """

    name: str
    kind: Kind
    bandwidth: float
    cache_bandwidth: float
    cache: int
    processors: int
    launch_us: float
    flops: Mapping[str, float]
    special: Mapping[str, float]
    loads: float
    atomics: float
    threads: int = 0
    blocks: int = 0
    registers: int = 0
    shared: int = 0
    cc: tuple[int, int] = (0, 0)
    scalar: float = 0.0
    levels: tuple[tuple[int, float], ...] = ()
    clock: float = 0.0
    warp: int = 32
    vector_bytes: int = 16
    sector: int = 32
    line: int = 128
    banks: int = 32
    bank_bytes: int = 4
    block_threads: int = 1024
    thread_registers: int = 255
    static_shared: int = 48 << 10
    line_atomics: float = 0.0
    latency: float = 0.0
    products: Mapping[str, float] = field(default_factory=lambda: {"float32": 1e11})
    # Six coordinates an element took 36 us of 7.2 million threads that moved 58 MB in 12, on an H200.
    coordinate_steps: int = 6
    # Running sums of 8192 x 8192 elements in float64, 512 or 1024 a step of 128 threads, took 93 and 55 us beside a
    # copy of as many bytes on an H200; running maxima of half as many in float32, 1024 a step of 256 threads, 19 us.
    exchange_cycles: float = 2.4
    # Eight blocks that sum 64 MiB of an H200 move 47 GB/s each, and three more functions of each element: 1.5 times.
    own_bandwidth: float = 2.0
    # Rows of 256 numbers woven into columns of 16 bytes a thread took 162 to 244 us of 8.4 million lines written, 341
    # of 16.8; columns read, 140 us of 16.8 million lines and 233 of 33.5, on an H200.
    line_reads: float = 0.0
    line_writes: float = 0.0

    @property
    def resident_threads(self) -> int:
        """Threads that run at once, as a power of two: as many or fewer than there are.

        >>> import idgraph as ig
        >>> ig.cost.devices["H200"].resident_threads, ig.cost.devices["A100"].resident_threads
        (262144, 131072)
        """
        return floor_power_of_two(self.processors * max(1, self.threads))

    @property
    def resident_bytes(self) -> int:
        """Bytes of one widest access of all `resident_threads`.

        >>> import idgraph as ig
        >>> ig.cost.devices["H200"].resident_bytes
        4194304
        """
        return self.resident_threads * self.vector_bytes

    def lanes(self, item: int) -> int:
        """Elements of ``item`` bytes in one widest access. Raises `IdGraphError` for no positive integer.

        >>> import idgraph as ig
        >>> ig.cost.devices["H200"].lanes(2)
        8
        """
        if type(item) is not int or item < 1:
            raise IdGraphError(f"lanes: item is {short_repr(item)}", hint="the bytes of one element, at least 1")
        return max(1, self.vector_bytes // item)

    def busy(self, blocks: float) -> float:
        """The share of memory's bandwidth that so many blocks of many threads can use.

        >>> import idgraph as ig
        >>> ig.cost.devices["H200"].busy(33), ig.cost.devices["H200"].busy(132)
        (0.5, 1.0)
        """
        _number("busy", "blocks", blocks)
        return min(1.0, self.own_bandwidth * blocks / self.processors)

    @property
    def bank_row(self) -> int:
        """Bytes that all banks of shared memory serve at once.

        >>> import idgraph as ig
        >>> ig.cost.devices["H200"].bank_row
        128
        """
        return self.banks * self.bank_bytes

    @property
    def core_cache(self) -> int:
        """Bytes of the farthest cache that one processor has for itself; of its share of ``cache`` where none is given.

        >>> import idgraph as ig
        >>> ig.cost.devices["cpu"].core_cache
        1048576
        """
        return (self.levels[-1][0] if self.levels else self.cache) // self.processors

    @arguments(IdGraphError)
    def rate(self, dtype: str, special: bool) -> float:
        """Operations a second of ``dtype``; a type without a rate is as fast as int64 or float32."""
        table = self.special if special else self.flops
        return table.get(dtype) or table["float32"]

    def line_seconds(self, reads: float, writes: float) -> float:
        """Seconds in which warps ask for parts of so many lines of the cache; 0 where no rate is known.

        >>> import idgraph as ig
        >>> round(ig.cost.devices["H200"].line_seconds(0, 8.4e6) * 1e6)
        165
        """
        _number("line_seconds", "reads", reads)
        _number("line_seconds", "writes", writes)
        return sum(n / rate for n, rate in ((reads, self.line_reads), (writes, self.line_writes)) if rate)

    @arguments(IdGraphError)
    def index_seconds(self, coordinates: float, addresses: float = 0) -> float:
        """Seconds in which all processors find so many coordinates, and sum them up to so many addresses.

        >>> import idgraph as ig
        >>> round(ig.cost.devices["H200"].index_seconds(6 * 7.2e6) * 1e6)
        18
        """
        _number("index_seconds", "coordinates", coordinates)
        _number("index_seconds", "addresses", addresses)
        return (self.coordinate_steps * coordinates + addresses) / self.rate("int32", special=False)

    @arguments(IdGraphError)
    def exchange_seconds(self, values: float, threads: int, size: int) -> float:
        """Seconds in which all processors combine so many values of ``size`` bytes, one each of ``threads`` at a time.

        >>> import idgraph as ig
        >>> round(ig.cost.devices["H200"].exchange_seconds(2**24, 128, 8) * 1e6)
        76
        """
        _number("exchange_seconds", "values", values)
        _number("exchange_seconds", "threads", threads)
        if not self.clock:
            return 0.0
        words, halvings = -(-size // self.bank_bytes), max(0, threads - 1).bit_length()
        return values / self.warp * words * halvings * self.exchange_cycles / (self.processors * self.clock)

    @arguments(IdGraphError)
    def function(self, op: str, dtype: str, library: bool) -> float:
        """Values a second of a function: its own rate, else that of a library's of ``dtype``, or of special operations.

        >>> import idgraph as ig
        >>> c = ig.cost.devices["cpu"]
        >>> c.function("tan", "float32", library=True), c.function("div", "float32", library=False)
        (450000000.0, 19000000000.0)
        """
        rate = self.rate(dtype, special=True)
        names = (f"{op} {dtype}", *((f"libm {dtype}", "libm") if library else ()))
        return min(rate, next((self.special[n] for n in names if n in self.special), rate))

    @property
    def cooperative(self) -> bool:
        """Whether all blocks of one launch can wait for each other: CUDA devices of capability 6.0 and later, where
        all of them are resident (CUDA programming guide, cooperative groups).

        >>> import idgraph as ig
        >>> ig.cost.devices["H200"].cooperative, ig.cost.devices["cpu"].cooperative
        (True, False)
        """
        return self.kind == "cuda" and self.cc >= (6, 0) and self.threads > 0

    def to_json(self) -> str:
        """One JSON object, which `Device.from_json` reads back."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    @arguments(IdGraphError)
    def from_json(text: str) -> Device:
        """A device from `to_json`'s text. Raises `IdGraphError` for anything else."""
        if len(text) > LARGEST:
            raise IdGraphError(f"not a device: the text has {len(text)} characters, at most {LARGEST}")
        try:
            given = cast("object", json.loads(text))
        except RecursionError:
            raise IdGraphError("not a device: the text is nested too deep") from None
        except ValueError as error:
            raise IdGraphError(f"not a device: {error}") from None
        return _device(given)

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.bandwidth / 1e9:.4g} GB/s, {self.processors} processors, "
            f"{self.cache / (1 << 20):.4g} MiB cache, {self.launch_us:.3g} us a launch"
        )


def _device(given: object) -> Device:
    """A device from plain data; every field is checked."""
    names = {f.name: f for f in fields(Device)}
    if not isinstance(given, dict):
        raise IdGraphError(f"not a device: {short_repr(given)} is not a mapping")
    table = cast("dict[str, object]", given)
    for name in table:
        if name not in names:
            raise IdGraphError(f"not a device: unknown field {short_repr(name)}", hint=", ".join(names))
    base = devices["H200" if table.get("kind") == "cuda" else "cpu"]
    made: dict[str, object] = {}
    for name, value in table.items():
        like: object = getattr(base, name)
        if name in POWERS:
            made[name] = _power_of_two(name, value)
        elif isinstance(like, Mapping):
            made[name] = _rates(name, value)
        elif name == "levels":
            made[name] = _levels(value)
        elif isinstance(like, tuple):
            pair = list(cast("list[object]", value)) if isinstance(value, (list, tuple)) else []
            if len(pair) != 2 or not all(type(x) is int and 0 <= x < 1000 for x in pair):
                raise IdGraphError(f"not a device: {name} is {short_repr(table[name])}", hint=f"{name} is like {like}")
            made[name] = tuple(pair)
        elif isinstance(like, str):
            if not isinstance(value, str) or (name == "kind" and value not in ("cuda", "cpu")):
                raise IdGraphError(f"not a device: {name} is {short_repr(value)}", hint=f"{name} is like {like!r}")
            made[name] = check_name(value, "device")
        else:
            made[name] = _positive(name, value, 1 if name in DIVISORS else 0, whole=isinstance(like, int))
    missing = [n for n in ("name", "kind", "bandwidth") if n not in made]
    if missing:
        raise IdGraphError(f"not a device: {missing[0]} is missing")
    return replace(base, **made)  # pyright: ignore[reportArgumentType]


def _levels(value: object) -> tuple[tuple[int, float], ...]:
    """Caches: pairs of bytes and bytes a second."""
    made: list[tuple[int, float]] = []
    told: object = value
    for x in cast("list[object]", value) if isinstance(value, (list, tuple)) else [value]:
        pair: list[object] = list(cast("list[object]", x)) if isinstance(x, (list, tuple)) else []
        if len(pair) != 2 or len(made) >= 8:
            raise IdGraphError(
                f"not a device: levels is {short_repr(told)}", hint="at most 8 pairs of bytes and bytes a second"
            )
        made.append((int(_positive("levels", pair[0], 1, whole=True)), _positive("levels", pair[1], 1)))
    return tuple(made)


def _power_of_two(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 1 << 20 or value & (value - 1):
        raise IdGraphError(f"not a device: {name} is {short_repr(value)}", hint=f"{name} is a power of two")
    return value


def _positive(name: str, value: object, least: float, whole: bool = False) -> float:
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= MOST:
        what = "a whole number" if whole else "a number"
        raise IdGraphError(
            f"not a device: {name} is {short_repr(value)}", hint=f"{name} is {what} from {least} to {MOST}"
        )
    return value


def _rates(name: str, value: object) -> dict[str, float]:
    table = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if "float32" not in table:
        raise IdGraphError(f"not a device: {name} has no rate for float32", hint='like {"float32": 1e12}')
    return {check_name(k, "type"): _positive(f"{name}[{k!r}]", v, least=1) for k, v in table.items()}


def _cuda(
    name: str, bandwidth: float, cache: int, clock: float, processors: int, shared: int, cc: tuple[int, int]
) -> Device:
    """A GPU of the last generations: 64 or 128 lanes of float32 and 16 special units a multiprocessor, at ``clock``."""
    lanes = 64 if cc < (8, 6) else 128
    double = 1 if cc[1] == 0 else 1 / 32  # of a multiprocessor's lanes; other chips than the largest have few
    wide = processors * clock * lanes
    # Of the peak of tensor cores a library's product of 8192 x 768 x 50264 reaches 0.72 on an H100; with rows of 50257
    # elements it takes kernels of single elements, which reach 512 operations a cycle and multiprocessor.
    product = 0.72 * processors * clock * (4096 if cc[0] == 9 else 2048 if cc[1] == 0 else 1024)
    products = {"float32": 2 * wide, "float64": wide * double}
    for t in ("float16", "bfloat16"):
        products |= {t: product, f"{t} unaligned": processors * clock * 512}
    return Device(
        name, "cuda", bandwidth, 2.2 * bandwidth, cache, processors, 2.5,
        {"float32": 2 * wide, "float64": wide * double, "float16": 4 * wide, "bfloat16": 4 * wide, "int64": wide / 4,
         "int32": wide / 2, "bool": wide},
        {"float32": processors * clock * 16, "float64": processors * clock * 2},
        processors * clock * 32, 1.6e11 * (bandwidth / 2e12),
        threads=2048, blocks=32, registers=65536, shared=shared, cc=cc, clock=clock,
        latency=5e-7,  # of 512 writes after each other, each of what two loads in a row have found: 0.2 ms on an H200
        line_reads=0.65 * processors * clock, line_writes=0.22 * processors * clock,
        line_atomics=2e8,  # on an H100: 2^21 updates of 16 bytes to 8 lines in 1.3 ms
        products=products,
    )  # fmt: skip


devices: dict[str, Device] = {
    "H200": _cuda("H200", 4.26e12, 60 << 20, 1.75e9, 132, 227 << 10, (9, 0)),
    "H100": _cuda("H100", 2.95e12, 50 << 20, 1.75e9, 132, 227 << 10, (9, 0)),
    "A100": _cuda("A100", 1.75e12, 40 << 20, 1.41e9, 108, 163 << 10, (8, 0)),
    # a small card, by its data sheet: 0.9 of its bandwidth; nothing was measured on one
    "L4": replace(_cuda("L4", 2.7e11, 48 << 20, 2.04e9, 58, 99 << 10, (8, 9)), threads=1536, blocks=24),
    "cpu": Device(  # two cores of an EPYC: as measured, but for the bandwidth, which is a sum's of the CPU table
        "cpu", "cpu", 1.83e10, 1.7e11, 32 << 20, 2, 15.0,
        {"float32": 1.05e11, "float64": 5.2e10, "int64": 6e10},
        {"float32": 1.9e10, "float64": 6.4e9, "int64": 8e8, "exp float32": 3.1e9, "exp float64": 4.6e8,
         "sigmoid float32": 3.2e9, "sigmoid float64": 4.2e8, "tanh float32": 1.6e9, "tanh float64": 1.6e8,
         "erf float32": 8.4e8, "erf float64": 1.5e8, "exp32 float32": 3.1e9, "libm float64": 4.6e8, "libm": 4.5e8},
        7.5e10, 2.3e9, scalar=1.15e10, levels=((64 << 10, 2.1e11), (2 << 20, 2.1e11)), line=64,
    ),
}  # fmt: skip
"""The devices known by name; add your own: ``ig.cost.devices["mine"] = ig.cost.measure_device("cpu")``."""


def _number(what: str, name: str, value: object) -> None:
    if not isinstance(value, (int, float)) or value < 0:
        raise IdGraphError(f"{what}: {name} is {short_repr(value)}", hint="a number that is not negative")


def device_of(given: Device | str) -> Device:
    """The device, or the one of that name."""
    if isinstance(given, Device):
        return given
    found = devices.get(given) if isinstance(given, str) else None  # pyright: ignore[reportUnnecessaryIsInstance] - users are not type checkers
    if found is None:
        raise IdGraphError(
            f"no device {short_repr(given)} is known",
            hint=f"{one_of(given, devices)} (or a Device: ig.cost.measure_device)",
        )
    return found


_IN_FORCE: ContextVar[Mapping[Kind, Device]] = ContextVar("_IN_FORCE", default={})  # noqa: B039 - never written to
_DEFAULT: Mapping[Kind, str] = {"cuda": "H200", "cpu": "cpu"}


def current_device(kind: Kind = "cuda") -> Device:
    """The device that schedules, analyses and kernels of ``kind`` are for: that of `use_device`, else the H200 or "cpu"
    of `devices`.
    """
    found = _IN_FORCE.get().get(kind)
    return devices[_DEFAULT[kind]] if found is None else found


@contextmanager
def use_device(device: Device | str) -> Generator[Device]:
    """Within it, everything that depends on a machine's sizes asks this one: tiles, widths, bank conflicts, sectors.

    Devices of the other kind stay as they are. Of threads, only the one that is inside. Raises `IdGraphError` for a
    name that is not known.

    >>> import idgraph as ig
    >>> f = ig.Fusion("half")
    >>> t = f.output(f.input("x", shape=(64,)) * 0.5)
    >>> with ig.cost.use_device("A100") as a100:
    ...     a100.processors, current_device() is a100
    (108, True)
    """
    chosen = device_of(device)
    token = _IN_FORCE.set({**_IN_FORCE.get(), chosen.kind: chosen})
    try:
        yield chosen
    finally:
        _IN_FORCE.reset(token)


def floor_power_of_two(n: int) -> int:
    """The largest power of two that is not more; 1 for numbers below."""
    return 1 << max(0, n.bit_length() - 1)


ALIGNMENT: Final = 16  # bytes that every array begins at a multiple of, unless its tensor says otherwise
TargetName = Literal["python", "numpy", "cpu", "cuda"]
Dialect = Literal["python", "numpy", "numba"]


@dataclass(frozen=True, slots=True)
class Target:
    """``about`` says whose names a source uses; ``dialect`` how index expressions are written; ``passes`` are those of
    `idgraph.passes.pipeline`, in order.

    ``threads``: parallel axes are blocks and threads, which have memory of their own, barriers and atomic updates.
    ``cores``: an outermost parallel loop runs on all of them. ``grids``: a statement runs for all points of its loops
    at once. ``typed``: values have machine types, and 16-bit floats are words in memory. ``short_indices``: 32-bit
    unsigned integers where ranges allow. ``shuffles``: threads of a warp exchange values without memory.

    Of targets that have threads: ``warp`` in threads and ``vector_bytes`` of one access are what the language can say,
    ``limits`` how far each dimension of a launch counts. What a machine has is in `idgraph.ir.device.Device`.
    """

    name: TargetName
    about: str
    dialect: Dialect
    passes: tuple[str, ...] = ()
    threads: bool = False
    cores: bool = False
    grids: bool = False
    typed: bool = False
    short_indices: bool = False
    shuffles: bool = False
    warp: int = 1
    vector_bytes: int = 0
    limits: Mapping[str, int] = field(default_factory=dict[str, int])


_COMPILED = "f32, maximum and the like are in codegen.runtime_lib.numba_ops"
GPU: Final = Target(
    "cuda",
    f"numba.cuda; {_COMPILED}",
    "numba",
    (
        "fuse_launches", "rename_columns", "hoist_loads", "prove_checks", "rows", "jam", "scan",
        "select_loads", "peel", "carry_digits",
        "unroll", "short_ints", "short_functions",
        "vectorize_loads", "realign", "cse", "dead_code", "vectorize_stores", "pack_half2", "dead_code",
        "roll", "fuse_lanes", "scalar_replacement", "end_rows",
    ),
    threads=True,
    typed=True,
    short_indices=True,
    shuffles=True,
    warp=32,
    vector_bytes=16,
    limits={
        "blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535,
        "threadIdx.x": 1024, "threadIdx.y": 1024, "threadIdx.z": 64,
    },
)  # fmt: skip
"""Warps and accesses are those of PTX, limits those of compute capability 5.0 to 10.0 (CUDA programming guide)."""
TARGETS: Final[Mapping[TargetName, Target]] = {
    t.name: t
    for t in (
        Target(
            "python", "plain Python; f32, maximum and the like are in codegen.runtime_lib.python_ops", "python"
        ),
        Target(
            "numpy", "NumPy, whole grids at once; f32, chunks and the like are in codegen.runtime_lib.numpy_ops",
            "numpy", grids=True,
        ),
        Target(
            "cpu", f"numba for the CPU; {_COMPILED}", "numba",
            ("serial", "collapse", "columns", "rename_columns", "fuse_nests", "hoist_loads", "prove_checks",
             "rows_of_core", "interchange", "unswitch", "round_once", "composed", "keep_rolled", "end_rows"),
            cores=True, typed=True,
        ),
        GPU,
    )
}  # fmt: skip


def access_bytes() -> int:
    """Bytes of the widest access that both the language of a GPU's kernels and the device in force have.

    >>> access_bytes()
    16
    """
    return min(GPU.vector_bytes, current_device().vector_bytes)
