"""Compiled kernels on disk: found again, never trusted, never half there."""

from __future__ import annotations

import errno
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import idgraph as ig
from idgraph.ir import DType
from idgraph.runtime import Program, compile_ptx
from idgraph.runtime import executable as cache_keys
from idgraph.runtime import kernel_cache as cache
from idgraph.runtime.cuda import compiler as compiling
from idgraph.runtime.cuda.driver import entry_name, words_of
from idgraph.runtime.executable import kernel_key
from idgraph.runtime.kernel_cache import BESIDE, FORMAT, KernelCache

pytest.importorskip("numba_cuda")


def program(folder: Path | None, n: int = 64, dtype: DType = "float32") -> Program:
    f = ig.Fusion("f")
    x = f.input("x", shape=(n,), dtype=dtype)
    f.output(x + ig.cat([x[n // 2 :], x[: n // 2]]))
    ig.schedule.auto(f)
    return ig.emit(f, target="cuda", cache=folder)


def forbidden(*_: object, **__: object) -> dict[str, object]:
    raise AssertionError("compiled again")


def test_what_was_compiled_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (plain,) = compile_ptx(program(None))
    (first,) = compile_ptx(program(tmp_path / "kernels"))
    body = [re.sub(r"\w*kernel0\w*", "kernel", ptx) for ptx in (first, plain)]  # numba numbers its functions
    assert body[0] == body[1]
    monkeypatch.setattr(compiling, "kernel_functions", forbidden)
    assert compile_ptx(program(tmp_path / "kernels")) == [first]
    with pytest.raises(AssertionError):
        compile_ptx(program(tmp_path / "kernels"), cc=(8, 0))


def test_keys_tell_shapes_types_devices_and_checks_apart() -> None:
    made = [program(None), program(None, n=128), program(None, dtype="bfloat16"), program(None, dtype="int32")]
    found = [
        kernel_key(p, p.kernels[0], checked, cc) for p in made for checked in (False, True) for cc in ((9, 0), (8, 0))
    ]
    assert len(set(found)) == len(found)


def test_names_and_lines_of_the_user_do_not_matter() -> None:
    f = ig.Fusion("other name")
    y = f.input("other input", shape=(64,))
    f.output(y + ig.cat([y[32:], y[:32]]))
    ig.schedule.auto(f)
    p, q = program(None), ig.emit(f, target="cuda")
    assert kernel_key(p, p.kernels[0], False, (9, 0)) == kernel_key(q, q.kernels[0], False, (9, 0))


def halved(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def changed(whole: bytes) -> bytes:
    return whole.replace(b"made", b"evil")


def older(whole: bytes) -> bytes:
    return whole.replace(FORMAT.encode(), b"idgraph kernel 0")


def no_text(whole: bytes) -> bytes:
    return b"\xff" + whole


def emptied(_: bytes) -> bytes:
    return b""


def pickled(whole: bytes) -> bytes:
    return pickle.dumps(whole)


@pytest.mark.parametrize("damage", [halved, changed, older, no_text, pickled, emptied])
def test_a_damaged_entry_is_made_anew(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    kept = KernelCache(tmp_path)
    assert kept.text("key", lambda: "made once") == "made once"
    (place,) = tmp_path.iterdir()
    place.write_bytes(damage(place.read_bytes()))
    assert kept.text("key", lambda: "made twice") == "made twice"
    assert kept.text("key", lambda: "made a third time") == "made twice"


def test_an_entry_under_another_name_is_not_taken(tmp_path: Path) -> None:
    kept = KernelCache(tmp_path)
    kept.text("a", lambda: "of a")
    (place,) = tmp_path.iterdir()
    kept.text("b", lambda: "of b")
    (other,) = (p for p in tmp_path.iterdir() if p != place)
    other.write_bytes(place.read_bytes())
    assert kept.text("b", lambda: "of b") == "of b"


def test_many_writers_leave_one_whole_entry(tmp_path: Path) -> None:
    kept = KernelCache(tmp_path)
    found: list[str] = []
    text = "x" * 200_000
    workers = [threading.Thread(target=lambda: found.append(kept.text("key", lambda: text))) for _ in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert set(found) == {text} and len(list(tmp_path.iterdir())) == 1


WRITER = """
import os, signal, sys
from pathlib import Path
from idgraph.runtime.kernel_cache import KernelCache
if sys.argv[2] == "killed":
    Path.replace = lambda self, target: os.kill(os.getpid(), signal.SIGKILL)
for n in range(20):
    assert KernelCache(Path(sys.argv[1])).find("key") in (None, "x" * 200_000)
    KernelCache(Path(sys.argv[1])).put("key", "x" * 200_000)
"""


def writer(folder: Path, how: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), how], cwd=Path(__file__).parents[2])


def test_processes_that_write_at_once_leave_one_whole_entry(tmp_path: Path) -> None:
    both = [writer(tmp_path, "") for _ in range(2)]
    assert [p.wait() for p in both] == [0, 0]
    assert KernelCache(tmp_path).find("key") == "x" * 200_000 and len(list(tmp_path.iterdir())) == 1


def test_a_process_killed_while_it_writes_leaves_nothing_that_is_read(tmp_path: Path) -> None:
    kept = KernelCache(tmp_path)
    assert writer(tmp_path, "killed").wait() == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(BESIDE) and kept.find("key") is None
    assert kept.text("key", lambda: "whole") == "whole"
    assert left.exists()  # another process might still be writing it
    os.utime(left, (0, 0))
    kept.put("other", "text")
    assert not left.exists() and kept.find("key") == "whole"


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ig.EmitError, match="cannot be written"):
        KernelCache(tmp_path / "file" / "inside").text("key", lambda: pytest.fail("made for nothing"))


def test_a_path_that_no_system_has_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ig.EmitError, match=r"a\\x00b cannot be written"):
        KernelCache(tmp_path / "a\0b").text("key", lambda: pytest.fail("made for nothing"))


def test_a_file_without_end_is_not_read_into_memory(tmp_path: Path) -> None:
    kept = KernelCache(tmp_path)
    kept.put("key", "text")
    (place,) = tmp_path.iterdir()
    with open(place, "ab") as file:
        file.truncate(2**40)  # takes no room on the disk
    assert kept.find("key") is None


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ig.EmitError, match="cannot be written") as found:
        KernelCache(tmp_path).text("key", lambda: "text")
    assert "No space left" in str(found.value) and not list(tmp_path.iterdir())


def test_what_can_be_read_needs_no_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that others fill, such as one of an image, may be read-only."""
    kept = KernelCache(tmp_path)
    kept.put("key", "text")
    monkeypatch.setattr(tempfile, "mkstemp", forbidden)
    assert kept.text("key", lambda: pytest.fail("made again")) == "text"


def test_what_others_could_have_written_is_not_read(tmp_path: Path) -> None:
    kept = KernelCache(tmp_path)
    kept.put("key", "planted")
    (place,) = tmp_path.iterdir()
    place.chmod(0o666)
    assert kept.find("key") is None
    assert kept.text("key", lambda: "own") == "own" and kept.find("key") == "own"  # made again, for this user alone
    target = tmp_path.parent / "elsewhere"
    place.replace(target)
    place.symlink_to(target)
    assert kept.find("key") is None
    os.chmod(tmp_path, 0o777)
    with pytest.raises(ig.EmitError, match="others may write") as found:
        kept.text("key", lambda: pytest.fail("made for nothing"))
    assert "chmod go-w" in str(found.value)
    os.chmod(tmp_path, 0o700)  # as the hint says
    assert kept.text("key", lambda: "own again") == "own again"


def test_a_folder_that_others_could_put_another_in_the_place_of_is_not_read(tmp_path: Path) -> None:
    above = tmp_path / "shared"
    above.mkdir()
    kept = KernelCache(above / "deep" / "kernels")
    kept.put("key", "own")
    assert all(p.stat().st_mode & 0o777 == 0o700 for p in (above / "deep", above / "deep" / "kernels"))
    above.chmod(0o777)
    assert kept.find("key") is None
    with pytest.raises(ig.EmitError, match="others may write") as found:
        kept.text("key", lambda: pytest.fail("made for nothing"))
    assert f"chmod go-w {above}" in found.value.hint and str(above) in found.value.because[0]
    above.chmod(0o1777)  # as /tmp is: others cannot move what is this user's
    assert kept.find("key") == "own"
    above.chmod(0o775)  # as a umask of 002 makes it
    assert kept.find("key") == "own"
    if os.geteuid() == 0:
        os.chown(above, 1, 1)  # a checkout in a folder of another account
        assert kept.find("key") == "own"


def test_links_on_the_way_are_those_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "link").symlink_to("open/../real")
    kept = KernelCache(tmp_path / "link")
    kept.put("key", "own")
    assert kept.find("key") == "own" and KernelCache(tmp_path / "real").find("key") == "own"
    monkeypatch.chdir(tmp_path)
    assert KernelCache(Path("link")).find("key") == "own" == KernelCache(Path("open") / ".." / "real").find("key")
    (tmp_path / "open" / "absolute").symlink_to(tmp_path / "link")
    assert KernelCache(tmp_path / "open" / "absolute").find("key") == "own"
    (tmp_path / "open").chmod(0o777)  # others could turn the link, or what it leads through
    assert kept.find("key") is None and KernelCache(tmp_path / "open" / "absolute").find("key") is None
    assert KernelCache(tmp_path / "real").find("key") == "own"
    (tmp_path / "open").chmod(0o1777)
    assert KernelCache(tmp_path / "open" / "absolute").find("key") == "own"
    (tmp_path / "round").symlink_to(tmp_path / "round")
    assert KernelCache(tmp_path / "round").find("key") is None
    if os.geteuid() == 0:  # a link that another user has made in a folder such as /tmp
        os.lchown(tmp_path / "open" / "absolute", 1, 1)  # who does not own that folder
        assert KernelCache(tmp_path / "open" / "absolute").find("key") is None
        with pytest.raises(ig.EmitError, match="others may write"):
            KernelCache(tmp_path / "open" / "absolute").put("key", "own")


def test_what_belongs_to_somebody_else_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KernelCache(tmp_path)
    kept.put("key", "theirs")
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner:
        assert kept.find("key") is None
    else:  # root's are everybody's to read; so a file of another user stands in
        (place,) = tmp_path.iterdir()
        os.chown(place, 1, -1)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        assert kept.find("key") is None


EIGHT = """
import sys
from pathlib import Path
from idgraph.runtime.kernel_cache import KernelCache
kept, me = KernelCache(Path(sys.argv[1])), sys.argv[2]
for n in range(60):
    key = f"kernel {n % 7} of {'anyone' if n % 2 else me}"
    assert kept.text(key, lambda: f"text of {key}") == f"text of {key}"
"""


def test_eight_processes_never_get_the_kernel_of_another(tmp_path: Path) -> None:
    command = [sys.executable, "-c", EIGHT, str(tmp_path)]
    both = [subprocess.Popen([*command, str(n)], cwd=Path(__file__).parents[2]) for n in range(8)]
    assert [p.wait() for p in both] == [0] * 8


# Eight processes read and write eleven entries without end; one of them, at random, is killed at a random moment, and
# another begins in its place. A process that reads nothing, or what was never written, ends by itself, with status 3.
KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from idgraph.runtime.kernel_cache import KernelCache

def texts(key):
    return {f"{key} {v} " * (200 + 4000 * v) for v in range(3)}

def work(kept, r):
    try:
        while True:
            key = f"kernel {r.randrange(11)}"
            if kept.find(key) not in texts(key):
                os._exit(3)
            kept.put(key, r.choice(sorted(texts(key))))
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(4)

def begin(kept, seed):
    child = os.fork()
    if child == 0:
        work(kept, random.Random(seed))
    return child

kept, kills, r = KernelCache(Path(sys.argv[1])), int(sys.argv[2]), random.Random(5)
for n in range(11):
    kept.put(f"kernel {n}", min(texts(f"kernel {n}")))
children = [begin(kept, n) for n in range(8)]
for n in range(kills):
    time.sleep(r.uniform(0, 0.01))
    at = r.randrange(8)
    os.kill(children[at], signal.SIGKILL)
    _, status = os.waitpid(children[at], 0)
    assert os.WIFSIGNALED(status), status
    children[at] = begin(kept, 8 + n)
for child in children:
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
for n in range(11):
    assert kept.find(f"kernel {n}") in texts(f"kernel {n}")
"""


@pytest.mark.parametrize("kills", [50, pytest.param(500, marks=pytest.mark.nightly)])
def test_processes_killed_at_random_moments_leave_no_entry_that_is_wrong(kills: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(kills)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(p.name.startswith(BESIDE) for p in tmp_path.iterdir())  # some were killed while they wrote
    assert KernelCache(tmp_path).text("another", lambda: "whole") == "whole"


def test_another_version_compiles_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    p = program(None)
    before = kernel_key(p, p.kernels[0], False, (9, 0))
    monkeypatch.setattr(cache_keys, "versions", lambda: "numba-cuda 99")
    assert kernel_key(p, p.kernels[0], False, (9, 0)) != before


def test_ptx_takes_the_words_that_are_laid_out() -> None:
    """Seven 64-bit parameters for an array, one for an integer: what `words_of` gives a launch."""
    f = ig.Fusion("symbolic")
    n = f.symbol("n", min=1)
    f.output(f.input("x", shape=(n,)) + 1.0)
    ig.schedule.auto(f)
    p = ig.emit(f, target="cuda")
    (ptx,) = compile_ptx(p)
    head = ptx[ptx.index(".entry") : ptx.index("{", ptx.index(".entry"))]
    kernel = p.kernels[0]
    assert head.count(".param .u64") == 7 * len(kernel.buffers) + len(kernel.scalars)
    assert head.count(".param") == head.count(".param .u64") and entry_name(ptx) in head

    about = {"shape": (5,), "strides": None, "typestr": "<u2", "data": (4096, False), "version": 3}
    assert words_of(SimpleNamespace(__cuda_array_interface__=about)) == [0, 0, 5, 2, 4096, 5, 2]
    assert words_of(-3) == [-3]


def test_what_is_left_out_of_the_versions_compiles_nothing() -> None:
    folder = Path(cache.__file__).parent
    for name in cache.BESIDE_COMPILING:
        assert "jit(" not in (folder / "cpu" / name).read_text(encoding="utf-8")
