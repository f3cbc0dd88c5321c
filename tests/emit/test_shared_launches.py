"""Nests that share a launch, by enumeration: which thread of which block writes which element, and in what order
launches touch a buffer. Nothing but the statements of a kernel is read."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir.device import current_device
from idgraph.kernel.ir import If, Kernel, KernelModule, Loop, SingleThread, Stmt, Store, bodies, shared_layout
from idgraph.passes.kernel_fusion import fits, fuse_kernels, nested, reblock
from tests.property.budget import examples

Block = tuple[int, int, int]


def stores(body: Sequence[Stmt], at: Mapping[str, int], thread: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """(buffer, element) of each store that one thread executes; ``thread`` has its coordinates."""
    for s in body:
        match s:
            case Loop() if s.parallel in thread:
                var = thread[s.parallel] - int(s.first.evaluate(at))
                if 0 <= var < int(s.extent.evaluate(at)):
                    yield from stores(s.body, {**at, s.var: var}, thread)
            case Loop():
                for var in range(int(s.extent.evaluate(at))):
                    yield from stores(s.body, {**at, s.var: var}, thread)
            case If():
                if s.condition.evaluate(at):
                    yield from stores(s.body, at, thread)
            case SingleThread():
                if all(thread[d] == 0 for d in s.dims):
                    yield from stores(s.body, at, thread)
            case Store():
                yield s.buffer.name, int(s.address.evaluate(at))
            case _:
                yield from stores(bodies(s), at, thread)


def written(k: Kernel) -> Counter[tuple[str, int]]:
    """How often each element is written by all threads of the launch."""
    dims = [f"{kind}Idx.{a}" for kind in ("block", "thread") for a in "xyz"]
    sizes = [max((int(e) for e in k.launch.get(d, ())), default=1) for d in dims]
    return Counter(
        x for at in itertools.product(*map(range, sizes)) for x in stores(k.body, {}, dict(zip(dims, at, strict=True)))
    )


def free_nest(blocks: int, threads: int, left_out: int = 0) -> Kernel:
    """Each thread writes one element but the last ``left_out`` ones of all."""
    guard = f"if b*{threads} + t < {blocks * threads - left_out}:" if left_out else "for one < 1:"
    return ig.kernel.parse(f"""
kernel k():
  buffer x: float32[{blocks * threads}] input "x"
  buffer y: float32[{blocks * threads}] output "y"
  launch blockIdx.x: {blocks}
  launch threadIdx.x: {threads}
  for b < {blocks}, blockIdx.x:
    for t < {threads}, threadIdx.x:
      {guard}
        v: float32 = x[b*{threads} + t]
        y[b*{threads} + t] = v
""")


SHAPES: list[Block] = [(128, 1, 1), (32, 4, 1), (96, 1, 1), (64, 2, 2), (256, 1, 1), (64, 1, 1)]


@pytest.mark.parametrize("block", SHAPES, ids=str)
@pytest.mark.parametrize("threads", [1, 20, 32, 64, 96, 128, 192, 256])
@pytest.mark.parametrize("blocks", [1, 2, 3, 5])
def test_on_blocks_of_any_shape_each_element_is_written_once(blocks: int, threads: int, block: Block) -> None:
    for left_out in (0, 1):
        k = nested(free_nest(blocks, threads, left_out=left_out))
        assert k is not None and k.free
        if not fits(k, block):
            return
        made = reblock(k, block)
        assert written(made) == Counter({("y", n): 1 for n in range(blocks * threads - left_out)})


SINGLE = """
kernel k():
  buffer x: float32[{blocks}] input "x"
  buffer y: float32[{blocks}] output "y"
  launch blockIdx.x: {blocks}
  launch threadIdx.x: 32
  for b < {blocks}, blockIdx.x:
    v: float32 = x[b]
    single threadIdx.x:
      y[b] = v
"""
EXCHANGED = """
kernel k():
  buffer w: float32[256] input "w"
  buffer z: float32[2] output "z"
  launch blockIdx.x: 2
  launch threadIdx.x: 128
  for b < 2, blockIdx.x:
    acc a: float32 = 0
    for t < 128, threadIdx.x:
      v: float32 = w[b*128 + t]
      a <- sum v
    a <- sum over threadIdx.x
    single threadIdx.x:
      z[b] = a
"""


@pytest.mark.parametrize("blocks", [1, 3, 8])
def test_what_the_first_thread_of_a_block_writes_is_written(blocks: int) -> None:
    kernels = ig.kernel.parse(SINGLE.format(blocks=blocks)), ig.kernel.parse(EXCHANGED)
    made = fuse_kernels(KernelModule(kernels, (), {}, {})).kernels
    assert sum(map(written, made), Counter[tuple[str, int]]()) == Counter(
        {**{("y", n): 1 for n in range(blocks)}, ("z", 0): 1, ("z", 1): 1}
    )


SHARED = """
kernel k():
  buffer x: float32[256] input "x"
  buffer {name}: float32[256] output "{name}"
  launch blockIdx.x: 2
  launch threadIdx.x: 128
  for b < 2, blockIdx.x:
    alloc tile{name}: float32[{size}] shared "t"
    for t < 128, threadIdx.x:
      v: float32 = x[b*128 + t]
      tile{name}[t] = v
    barrier  # the tile is complete
    for u < 128, threadIdx.x:
      w: float32 = tile{name}[127 - u]
      {name}[b*128 + u] = w
"""


@pytest.mark.parametrize("size", [128, 1 << 12, 3 << 12])
def test_launches_ask_for_no_more_shared_memory_than_each_nest_has(size: int) -> None:
    """Shared arrays that fit the memory of every launch alone stay apart where they do not fit it together."""
    kernels = tuple(ig.kernel.parse(SHARED.format(name=n, size=size)) for n in ("y", "z", "w"))
    most = current_device().static_shared
    assert all(shared_layout(k.body).total <= most for k in kernels)
    made = fuse_kernels(KernelModule(kernels, (), {}, {})).kernels
    assert all(shared_layout(k.body).total <= most for k in made)
    assert len(made) == -(-3 // max(1, most // (4 * size))) if size > 128 else len(made) == 1


COLUMNS = """
kernel k():
  buffer x: float32[400] input "x"
  buffer {name}: float32[400] output "{name}"
  launch blockIdx.x: 4
  for b < 4, blockIdx.x:
    for c < 4, column {length} of 2:
      for d < 32:
        if c*32 + d < {length}:
          v: float32 = x[b*100 + c*32 + d]
          {name}[b*100 + c*32 + d] = v
"""


@pytest.mark.parametrize(("one", "other"), [(100, 97), (100, 100)])
def test_a_loop_of_two_nests_ends_where_both_do(one: int, other: int) -> None:
    """A split axis of another length is no axis of the loop that the nests share."""
    kernels = (
        ig.kernel.parse(COLUMNS.format(name="y", length=one)), ig.kernel.parse(COLUMNS.format(name="z", length=other)),
    )  # fmt: skip
    (made,) = fuse_kernels(KernelModule(kernels, (), {}, {})).kernels
    ends = {s.column.extent for s in loops(made.body) if s.column is not None}
    assert ends <= ({one} if one == other else set[int]())


def loops(body: Sequence[Stmt]) -> Iterator[Loop]:
    for s in body:
        if isinstance(s, Loop):
            yield s
        yield from loops(bodies(s))


Touched = list[tuple[set[str], set[str]]]  # what each kernel reads and writes


def touching(n: int, read: set[str], write: set[str], blocks: int, threads: int, meet: bool) -> Kernel:
    """Kernel number ``n``, which reads and writes these buffers; where its threads ``meet``, it has blocks of its own
    shape."""
    roles = {b: "output" if b in write else "input" for b in sorted(read | write)}
    lines = [f'  buffer {b}: float32[1024] {role} "{b}"' for b, role in roles.items()]
    lines += [f"  launch blockIdx.x: {blocks}", f"  launch threadIdx.x: {threads}"]
    lines += [f"  for b0 < {blocks}, blockIdx.x:", f"    for t0 < {threads}, threadIdx.x:"]
    lines += [f"      v{n}_{b}: float32 = {b}[b0*{threads} + t0]" for b in sorted(read)]
    lines += [f"      {b}[b0*{threads} + t0] = {f'v{n}_{min(read)}' if read else '1'}" for b in sorted(write)]
    lines += ["    barrier  # all have written"] if meet else []
    return ig.kernel.parse("\n".join(("kernel k():", *lines, "")))


def ordered(kernels: Sequence[Kernel], touched: Touched) -> None:
    """Of two kernels that touch a buffer, one of which writes it, the later one is in a later launch."""
    joined = fuse_kernels(KernelModule(tuple(kernels), (), {}, {})).kernels
    home = {b: n for n, k in enumerate(joined) for b, _ in written(k) if b.startswith("own")}
    for m, n in itertools.combinations(range(len(touched)), 2):
        (read, write), (reads, writes) = touched[m], touched[n]
        if write & (reads | writes) or read & writes:
            assert home[f"own{m}"] < home[f"own{n}"], f"kernels {m} and {n}:\n" + "\n".join(map(str, kernels))


@st.composite
def modules(draw: st.DrawFn) -> tuple[list[Kernel], Touched]:
    """Kernels that read and write a few buffers, some of them again and again; each also writes one of its own."""
    touched: Touched = []
    kernels: list[Kernel] = []
    for n in range(draw(st.integers(2, 9))):
        read, write = (draw(st.sets(st.sampled_from("abcd"), max_size=2)) for _ in range(2))
        touched.append((read, write | {f"own{n}"}))
        shape = draw(st.sampled_from(((1, 32), (2, 128), (3, 64))))
        kernels.append(touching(n, *touched[-1], *shape, meet=draw(st.booleans())))
    return kernels, touched


@settings(max_examples=examples(100), deadline=None)
@given(modules())
def test_launches_keep_the_order_of_what_they_touch(made: tuple[list[Kernel], Touched]) -> None:
    ordered(*made)


def test_a_launch_that_is_put_off_twice_stays_in_front_of_its_readers() -> None:
    threads = (256, 128, 256, 64, 128, 256)
    touched: Touched = [
        (set(), {"a", "own0"}), (set(), {"b", "own1"}), ({"b"}, {"own2"}), ({"b"}, {"c", "own3"}),
        ({"a", "c"}, {"d", "own4"}), ({"d"}, {"own5"}),
    ]  # fmt: skip
    ordered([touching(n, *x, 2, t, meet=True) for n, (x, t) in enumerate(zip(touched, threads, strict=True))], touched)


@pytest.mark.parametrize(("rows", "together"), [(1 << 15, False), (256, True)])
def test_a_long_sum_and_long_elements_have_launches_of_their_own(rows: int, together: bool) -> None:
    """Registers of the sum would leave the elements' threads few: a launch is saved where it counts."""
    f = ig.Fusion("update")
    x, m = f.input("x", (rows, 1024)), f.input("m", (1024,))
    elements = f.output(x - m)
    f.output(ig.sum(x, 0))
    ig.schedule.auto(f, device="H200")
    program = ig.emit(f, "cuda")
    (writer,) = (k for k in program.kernels if elements.name in {b.title for b in k.buffers})
    reads = [b for k in program.kernels for b in k.buffers if b.title == "x"]
    assert len(reads) == (1 if together else 2) and (together or len(program.kernels) == 2), writer


def test_elements_and_their_sum_on_equal_blocks_are_one_nest() -> None:
    """Both compute the means of windows: in one nest each window is read once."""
    f = ig.Fusion("pooled")
    x = ig.cast(ig.pad(f.input("x", (32, 64, 56, 56), "bfloat16"), [1, 1, 1, 1]), "float32")
    windows = [x[..., i : 56 + i, k : 56 + k] for i in range(3) for k in range(3)]
    means = f.output(ig.cast(sum(windows[1:], windows[0]) / 9.0, "bfloat16"))
    f.output(ig.sum(ig.cast(means, "float32"), (1, 2, 3)))
    ig.schedule.auto(f, device="H200")
    first, last = ig.emit(f, "cuda").kernels  # the sum of each image is made of parts
    assert "x" in {b.title for b in first.buffers} and "x" not in {b.title for b in last.buffers}
