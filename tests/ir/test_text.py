"""L10: what is printed parses back, with symbols, strides and schedules."""

import idgraph as ig


def everything() -> ig.Fusion:
    f = ig.Fusion("everything")
    n = f.symbol("n", min=1, max=4096, multiple_of=8)
    a = f.input("a", shape=(n, 6), dtype="float16", alignment=4, offset=3)
    b = f.input("b", shape=(6, 4), strides=(1, 6))
    i = f.input("i", shape=(4, 2), dtype="int64", contiguity=(False, True))
    c = ig.pad(a[n // 2 :, ::-1], (1, -2), value=float("-inf"))
    d = ig.gather(b.T, 1, i)
    e = ig.roll(ig.cat([d, d], dim=1), 3, 1)
    g = ig.where(e > 0.5, e, -1e-7)
    f.output(c, ig.sum(g, 1, keepdim=True))
    g.split(1, 3).reorder({0: 1}).parallelize(0, "threadIdx.x")
    c.merge(0).split(0, n).resize(1, 0, 0)
    e.set_allocation([e.logical[1], e.logical[0]])
    e.set_memory("global")
    return f


def test_round_trip() -> None:
    f = everything()
    again = ig.parse(str(f))
    assert str(again) == str(f) and again == f
    assert [t.shape for t in again.tensors] == [t.shape for t in f.tensors]
    assert [[repr(d) for d in t.loop] for t in again.tensors] == [[repr(d) for d in t.loop] for t in f.tensors]


def test_axes_counted_from_the_back_are_kept_from_the_front() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6))
    f.output(ig.unsqueeze(x, (-1, 0)), ig.permute(x, (-1, 0)), ig.sum(x, -1), ig.cumsum(x, -2))
    again = ig.parse(str(f).replace("dims=(1,)", "dims=(-1,)").replace("dim=0", "dim=-2"))
    wanted = [("dims", (3, 0)), ("dims", (1, 0)), ("dims", (1,)), ("dim", 0)]
    for g in (f, again):
        assert [(k, e.attrs[k]) for e, (k, _) in zip(g.exprs, wanted, strict=True)] == wanted


def test_printing_is_stable() -> None:
    assert str(everything()) == str(everything())


def test_names_count_per_fusion() -> None:
    assert [d.name for d in everything()["a"].logical] == ["I0", "I1"]
    f = ig.Fusion("f")
    t0 = f.input("t0", shape=(8,))
    t1 = t0[:4]
    assert (t1.name, f["t1"]) == ("t1", t1)
    t1.name = "head"
    assert f["head"] is t1
