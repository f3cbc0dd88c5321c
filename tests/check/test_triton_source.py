"""Generated Triton source, read as text: forms that Inductor writes, against the program; nothing of it is executed."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

import pytest

import idgraph as ig
from idgraph.check.decide import decide
from idgraph.check.program import NeutralProgram
from idgraph.check.program_json import read_program
from idgraph.check.report import CheckReport
from idgraph.check.run import decide_source, of_source

WRAPPER = """
import triton
{name} = async_compile.triton('{name}', '''
import triton
import triton.language as tl

@triton_heuristics.pointwise(size_hints={{'x': 64}}, filename=__file__, triton_meta={{}}, inductor_meta={{}})
@triton.jit
def {name}({params}):
{body}
''', device_str='cuda')

class Runner:
    def call(self, args):
        {args}, = args
        args.clear()
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            {buf} = empty_strided_cuda((64, ), (1, ), torch.float32)
            stream0 = get_raw_stream(0)
            {name}.run({given}, stream=stream0)
        return ({buf}, )
"""


def wrapper(body: str, params: str, args: str, given: str, name: str = "triton_poi_fused_0", buf: str = "z") -> str:
    text = "\n".join("    " + line for line in body.strip("\n").splitlines())
    return WRAPPER.format(name=name, params=params, body=text, args=args, given=given, buf=buf)


def decided(text: str, data: dict[str, Any]) -> tuple[CheckReport, list[str]]:
    program: NeutralProgram = read_program(data)
    made, unread = of_source(program, text)
    return decide(made), unread


ROTATE: dict[str, Any] = {
    "program": """fusion "rotate" {
  x = input(shape=(4, 8), dtype="float32")
  a = slice(x, dims=(1,), starts=(4,), stops=(8,), steps=(1,))
  b = slice(x, dims=(1,), starts=(0,), stops=(4,), steps=(1,))
  y = cat(a, b, dim=1)
  z = add(x, y)
  output z
}""",
    "buffers": {"z": {"after": "op0"}}, "nests": [], "order": ["op0"],
}  # fmt: skip
INDEX = """
xnumel = 32
xoffset = tl.program_id(0) * XBLOCK
xindex = xoffset + tl.arange(0, XBLOCK)[:]
xmask = xindex < xnumel
"""
POINTWISE = f"""{INDEX}x2 = xindex
x0 = (xindex % 8)
x1 = xindex // 8
tmp0 = tl.load(in_ptr0 + (x2), xmask)
tmp1 = x0
tmp2 = tl.full([1], 0, tl.int64)
tmp3 = tmp1 >= tmp2
tmp4 = tl.full([1], 4, tl.int64)
tmp5 = tmp1 < tmp4
tmp6 = tl.load(in_ptr0 + (4 + 8*x1 + (x0)), tmp5 & xmask, eviction_policy='evict_last', other=0.0)
tmp7 = tmp1 >= tmp4
tmp8 = tl.full([1], 8, tl.int64)
tmp9 = tmp1 < tmp8
tmp10 = tl.load(in_ptr0 + (8*x1 + ((-4) + x0)), tmp7 & xmask, eviction_policy='evict_last', other=0.0).to(tl.float32)
tmp11 = tl.where(tmp5, tmp6, tmp10)
tmp12 = tmp0 + tmp11
tl.store(out_ptr0 + (x2), tmp12, xmask)
"""
PARAMS = "in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr"


def test_a_pointwise_kernel_is_proved() -> None:
    r, unread = decided(wrapper(POINTWISE, PARAMS, "x", "x, z, 32"), ROTATE)
    assert not unread and r.ok and r.decided and len(r.rows) == 2, str(r)


COPIED = f"""{INDEX}x0 = (xindex % 8)
x1 = xindex // 8
tmp0 = tl.load(in_ptr0 + (7 + ((-1)*x0) + 8*x1), xmask)
tl.store(out_ptr0 + (xindex), tmp0, xmask)
"""


@pytest.mark.parametrize(
    ("new", "decided"),
    [("tmp0, xmask)", True), ("tmp0*2, xmask)", False), ("tmp0.to(tl.int32), xmask)", False), ("3.0, xmask)", None)],
)
def test_what_a_text_computes_is_not_called_proved(new: str, decided: bool | None) -> None:
    """A copy of elements is proved; of another computation the addresses are, and a row says so."""
    data = {
        "program": """fusion "f" {
  x = input(shape=(4, 8), dtype="float32")
  z = flip(x, dims=(1,))
  output z
}""",
        "buffers": {"z": {"after": "op0"}}, "nests": [], "order": ["op0"],
    }  # fmt: skip
    text = wrapper(COPIED.replace("tmp0, xmask)", new), PARAMS, "x", "x, z, 32")
    r = decide_source(read_program(data), text)
    assert (r.ok, r.decided) == (decided is not None, decided is True), str(r)
    assert r.decided or any("what it computes of them is not (1 of 1 store)" in x.because for x in r.unknown), str(r)


def test_another_number_in_place_of_a_masked_element_is_not_called_proved() -> None:
    data = ROTATE | {
        "program": """fusion "f" {
  x = input(shape=(4, 8), dtype="float32")
  z = pad(x, left=(0, 0), right=(0, 2), value=1.0)
  output z
}"""
    }
    body = (
        INDEX.replace("32", "40")
        + """\
x0 = (xindex % 10)
x1 = xindex // 10
tmp1 = tl.load(in_ptr0 + (x0 + 8*x1), (x0 < 8) & xmask, other=2.0)
tl.store(out_ptr0 + (xindex), tmp1, xmask)
"""
    )
    for other in ("2.0", "0.0"):
        r = decide_source(read_program(data), wrapper(body.replace("2.0", other), PARAMS, "x", "x, z, 40"))
        assert not r.decided, (other, str(r))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(xindex % 8)", "(xindex % 4)"), ("xindex // 8", "xindex // 4"), ("4 + 8*x1", "3 + 8*x1"), ("(-4)", "(-3)"),
        ("[1], 4, tl.int64", "[1], 5, tl.int64"), ("8*x1 + ((", "4*x1 + (("), ("xnumel = 32", "xnumel = 31"),
        ("out_ptr0 + (x2)", "out_ptr0 + (x2 // 2)"), ("in_ptr0 + (x2)", "in_ptr0 + (x0)"),
    ],
)  # fmt: skip
def test_a_wrong_kernel_is_refuted(old: str, new: str) -> None:
    assert old in POINTWISE
    r, unread = decided(wrapper(POINTWISE.replace(old, new), PARAMS, "x", "x, z, 32"), ROTATE)
    assert not unread and r.refuted and r.refuted[0].counterexample is not None, str(r)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("tmp12, xmask)", "tmp12)", "xmask"), ("tl.program_id(0) * XBLOCK", "tl.program_id(0) * 64", "xindex"),
        ("[:]\n", "[foo()]\n", "xindex"), ("tl.store(", "evil.call(", "not known"),
        ("x1 = xindex // 8", "import os", "not known"),
        ("in_ptr0 + (x2)", "in_ptr7 + (x2)", "in_ptr7"), ("in_ptr0 + (x2)", "tmp9", "address"),
        ("x1 = xindex // 8", "x1 = xindex // (xindex - 8)", "negative"),
        ("x0 = (xindex % 8)", "x0 = [i for i in x]", "not known"),
    ],
)  # fmt: skip
def test_unknown_forms_are_told(old: str, new: str, told: str) -> None:
    assert old in POINTWISE
    _, unread = decided(wrapper(POINTWISE.replace(old, new), PARAMS, "x", "x, z, 32"), ROTATE)
    assert unread and told in unread[0], unread


SOFTMAX: dict[str, Any] = {
    "program": """fusion "softmax" {
  x = input(shape=(8, 33), dtype="float32")
  m = amax(x, dims=(1,), keepdim=true)
  d = sub(x, m)
  e = exp(d)
  s = sum(e, dims=(1,), keepdim=true)
  z = div(e, s)
  output z
}""",
    "buffers": {"z": {"after": "op0"}}, "nests": [], "order": ["op0"],
}  # fmt: skip
LOOPED = """
xnumel = 8
r0_numel = 33
rnumel = r0_numel
RBLOCK: tl.constexpr = R0_BLOCK
xoffset = tl.program_id(0) * XBLOCK
xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
xmask = xindex < xnumel
r0_base = tl.arange(0, R0_BLOCK)[None, :]
rbase = r0_base
x0 = xindex
_tmp2 = tl.full([XBLOCK, R0_BLOCK], float("-inf"), tl.float32)
for r0_offset in range(0, r0_numel, R0_BLOCK):
    r0_index = r0_offset + r0_base
    r0_mask = r0_index < r0_numel
    roffset = r0_offset
    rindex = r0_index
    r0_1 = r0_index
    tmp0 = tl.load(in_ptr0 + (r0_1 + 33*x0), r0_mask & xmask, eviction_policy='evict_last', other=0.0)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3 = triton_helpers.maximum(_tmp2, tmp1)
    _tmp2 = tl.where(r0_mask & xmask, tmp3, _tmp2)
tmp2 = triton_helpers.max2(_tmp2, 1)[:, None]
_tmp8 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
for r0_offset in range(0, r0_numel, R0_BLOCK):
    r0_index = r0_offset + r0_base
    r0_mask = r0_index < r0_numel
    r0_1 = r0_index
    tmp4 = tl.load(in_ptr0 + (r0_1 + 33*x0), r0_mask & xmask, eviction_policy='evict_last', other=0.0)
    tmp5 = tmp4 - tmp2
    tmp6 = tl_math.exp(tmp5)
    tmp7 = tl.broadcast_to(tmp6, [XBLOCK, R0_BLOCK])
    tmp9 = _tmp8 + tmp7
    _tmp8 = tl.where(r0_mask & xmask, tmp9, _tmp8)
tmp8 = tl.sum(_tmp8, 1)[:, None]
for r0_offset in range(0, r0_numel, R0_BLOCK):
    r0_index = r0_offset + r0_base
    r0_mask = r0_index < r0_numel
    r0_1 = r0_index
    tmp10 = tl.load(in_ptr0 + (r0_1 + 33*x0), r0_mask & xmask, eviction_policy='evict_first', other=0.0)
    tmp11 = tmp10 - tmp2
    tmp12 = tl_math.exp(tmp11)
    tmp13 = (tmp12 / tmp8)
    tl.store(out_ptr2 + (r0_1 + 33*x0), tmp13, r0_mask & xmask)
"""
ROWS = "in_ptr0, out_ptr2, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr"


def test_a_looped_reduction_is_decided() -> None:
    r, unread = decided(wrapper(LOOPED, ROWS, "x", "x, z, 8, 33", "triton_red_fused_0"), SOFTMAX)
    assert not unread and r.ok and r.decided, (unread, str(r))
    wrong = LOOPED.replace("r0_numel = 33", "r0_numel = 32")
    r, unread = decided(wrapper(wrong, ROWS, "x", "x, z, 8, 32", "triton_red_fused_0"), SOFTMAX)
    assert r.refuted


PERSISTENT = """
xnumel = 8
r0_numel = 33
R0_BLOCK: tl.constexpr = 64
xoffset = tl.program_id(0) * XBLOCK
xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
xmask = xindex < xnumel
r0_index = tl.arange(0, R0_BLOCK)[None, :]
r0_offset = 0
r0_mask = r0_index < r0_numel
r0_1 = r0_index
x0 = xindex
tmp0 = tl.load(in_ptr0 + (r0_1 + 33*x0), r0_mask & xmask, other=0.0)
tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
tmp3 = tl.where(r0_mask & xmask, tmp1, float("-inf"))
tmp4 = triton_helpers.max2(tmp3, 1)[:, None].to(tl.float32)
tmp5 = tmp0 - tmp4
tmp6 = tl_math.exp(tmp5)
tmp7 = tl.broadcast_to(tmp6, [XBLOCK, R0_BLOCK])
tmp9 = tl.where(r0_mask & xmask, tmp7, 0)
tmp10 = tl.sum(tmp9, 1)[:, None].to(tl.float32)
tmp11 = (tmp6 / tmp10)
tl.store(out_ptr2 + (r0_1 + 33*x0), tmp11, r0_mask & xmask)
"""


def test_a_persistent_reduction_is_decided() -> None:
    params = ROWS.replace(", R0_BLOCK : tl.constexpr", "")
    r, unread = decided(wrapper(PERSISTENT, params, "x", "x, z, 8, 33", "triton_per_fused_0"), SOFTMAX)
    assert not unread and r.ok and r.decided, (unread, str(r))
    wrong = PERSISTENT.replace("33*x0), tmp11", "32*x0), tmp11")
    r, _ = decided(wrapper(wrong, params, "x", "x, z, 8, 33", "triton_per_fused_0"), SOFTMAX)
    assert r.refuted


GATHER: dict[str, Any] = {
    "program": """fusion "gather" {
  x = input(shape=(9, 4), dtype="float32")
  i = input(shape=(5,), dtype="int64")
  z = index_select(x, i, dim=0)
  output z
}""",
    "buffers": {"z": {"after": "op0"}}, "nests": [], "order": ["op0"],
}  # fmt: skip
INDIRECT = """
xnumel = 20
xoffset = tl.program_id(0) * XBLOCK
xindex = xoffset + tl.arange(0, XBLOCK)[:]
xmask = xindex < xnumel
x1 = xindex // 4
x0 = (xindex % 4)
x2 = xindex
tmp0 = tl.load(in_ptr0 + (x1), xmask, eviction_policy='evict_last')
tmp1 = tl.full([XBLOCK], 9, tl.int32)
tmp2 = tmp0 + tmp1
tmp3 = tmp0 < 0
tmp4 = tl.where(tmp3, tmp2, tmp0)
tl.device_assert(((0 <= tmp4) & (tmp4 < 9)) | ~(xmask), "index out of bounds: 0 <= tmp4 < 9")
tmp6 = tl.load(in_ptr1 + (x0 + 4*tmp4), xmask)
tl.store(out_ptr0 + (x2), tmp6, xmask)
"""


def test_a_loaded_index_is_the_same_value() -> None:
    params = "in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr"
    r, unread = decided(wrapper(INDIRECT, params, "i, x", "i, x, z, 20"), GATHER)
    assert not unread and r.ok and r.decided and len(r.rows) == 3, (unread, str(r))
    for old, new in (("x0 + 4*tmp4", "x0 + 5*tmp4"), ("in_ptr0 + (x1)", "in_ptr0 + (x0)"), ("4*tmp4", "4*tmp0")):
        r, unread = decided(wrapper(INDIRECT.replace(old, new), params, "i, x", "i, x, z, 20"), GATHER)
        assert r.refuted or unread, (old, str(r))


TILED = """
ynumel = 4
xnumel = 8
yoffset = tl.program_id(1) * YBLOCK
yindex = yoffset + tl.arange(0, YBLOCK)[:, None]
ymask = yindex < ynumel
xoffset = tl.program_id(0) * XBLOCK
xindex = xoffset + tl.arange(0, XBLOCK)[None, :]
xmask = xindex < xnumel
x1 = xindex
y0 = yindex
tmp0 = tl.load(in_ptr0 + (x1 + 8*y0), xmask & ymask)
tl.store(out_ptr0 + (y0 + 4*x1), tmp0, xmask & ymask)
"""


def test_a_two_dimensional_tiling_is_proved() -> None:
    data: dict[str, Any] = {
        "program": 'fusion "t" {\n  x = input(shape=(4, 8), dtype="float32")\n  z = permute(x, dims=(1, 0))\n'
        "  output z\n}",
        "buffers": {"z": {"after": "op0"}}, "nests": [], "order": ["op0"],
    }  # fmt: skip
    params = "in_ptr0, out_ptr0, ynumel, xnumel, YBLOCK : tl.constexpr, XBLOCK : tl.constexpr"
    r, unread = decided(wrapper(TILED, params, "x", "x, z, 4, 8"), data)
    assert not unread and r.decided and r.ok, str(r)
    r, _ = decided(wrapper(TILED.replace("y0 + 4*x1", "y0 + 8*x1"), params, "x", "x, z, 4, 8"), data)
    assert r.refuted


@pytest.mark.parametrize("text", ["def (", "x = " + "(" * 5000, "\0"])
def test_bad_source_is_one_error(text: str) -> None:
    with pytest.raises(ig.check.CheckError):
        of_source(read_program(ROTATE), text)


def captured(fn: Any, *args: Any) -> Any:
    torch: Any = pytest.importorskip("torch")
    from idgraph.check.inductor_capture import Capture

    torch.manual_seed(0)
    found: Any = Capture(options={"cpp.fallback_scatter_reduce_sum": False}, name="f", source=True)
    found.run(fn, tuple(torch.rand(*a) if isinstance(a, tuple) else torch.tensor(a) for a in args))
    return found.lowered[0]


def of_text(found: Any, text: str) -> tuple[CheckReport, list[str]]:
    made, unread = of_source(found.after, text, found.dtypes)
    return decide(made, stage="source"), unread


def scattered(x: Any, i: Any) -> Any:
    import torch

    return torch.zeros(5, 7).scatter_add(1, i, x)


def joined(x: Any, y: Any) -> Any:
    import torch

    return torch.cat([x, y.flip(0)], 1).softmax(1)


PLACES = [[0, 3, 6], [1, 1, 1], [2, 0, 5], [4, 4, 6], [6, 5, 4]]
BROKEN: dict[str, tuple[Any, tuple[Any, ...], str, str]] = {
    "a part that begins one element late": (joined, ((5, 7), (5, 7)), "(14, 1), 7)", "(14, 1), 8)"),
    "a first part that begins late": (joined, ((5, 7), (5, 7)), "(14, 1), 0)  # alias", "(14, 1), 1)  # alias"),
    "positions from 1": (lambda x: x.argmax(1), ((5, 20),), "broadcast_to(rindex,", "broadcast_to(rindex + 1,"),
    "a minimum as a maximum": (lambda x: x.amin(1), ((5, 20),), "helpers.min2", "helpers.max2"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_text_that_is_broken_by_hand_is_refuted(name: str) -> None:
    fn, args, old, new = BROKEN[name]
    found = captured(fn, *args)
    right, unread = of_text(found, found.source)
    assert right.ok and right.decided and not unread, str(right)
    assert old in found.source
    wrong, unread = of_text(found, found.source.replace(old, new))
    assert wrong.refuted and not unread, str(wrong)


def test_kernels_run_in_the_order_of_the_text() -> None:
    """Memory that is filled with 0 after entries were added to it."""
    found = captured(scattered, (5, 3), PLACES)
    first, second = (line for line in found.source.splitlines() if ".run(" in line and "triton_" in line)
    text = found.source.replace(first, "SECOND").replace(second, first).replace("SECOND", second)
    right, wrong = of_text(found, found.source)[0], of_text(found, text)[0]
    assert right.ok and right.decided and "nothing has written before" in str(wrong.refuted[0])


def test_an_index_of_an_axis_that_may_count_from_its_end_is_no_false_alarm() -> None:
    found = captured(lambda x, i: x[i] * 2, (7, 5), [1, 3, 5, 1])
    assert "device_assert" in found.source
    right, unread = of_text(found, found.source)
    assert right.ok and right.decided and not unread, str(right)


def test_a_kernel_that_is_not_read_leaves_the_others_as_they_are() -> None:
    found = captured(lambda x, i, v: x.index_put((i,), v) + 0, (8, 6), [1, 3, 5], (3, 6))
    store = next(line for line in found.source.splitlines() if "tl.store(" in line)
    report, unread = of_text(found, found.source.replace(store, store.replace(", xmask)", ")"), 1))
    assert len(unread) == 1 and "xmask does not guard" in unread[0] and report.ok, str(report)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("in_ptr0 + (x2), xmask)", "in_ptr0 + (x2))", "a load that xmask"),
        ("tmp5 & xmask", "tmp5", "a load that xmask"),
        ("xindex < xnumel", "xindex <= xnumel", "beyond xnumel = 32"),
        ("xindex < xnumel", "tl.full([XBLOCK], True, tl.int1)[:]", "beyond xnumel = 32"),
        ("xnumel = 32\n", "xnumel = 32\nXBLOCK: tl.constexpr = 16\n", ""),
    ],
)  # fmt: skip
def test_lanes_beyond_the_last_point_touch_nothing(old: str, new: str, told: str) -> None:
    text = POINTWISE.replace(old, new)
    if not told:  # the block divides the size: nothing is beyond it
        text = text.replace("xindex < xnumel", "tl.full([XBLOCK], True, tl.int1)[:]")
    _, unread = decided(wrapper(text, PARAMS, "x", "x, z, 32"), ROTATE)
    assert bool(unread) == bool(told) and all(told in u for u in unread), unread
