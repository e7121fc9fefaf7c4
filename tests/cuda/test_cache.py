"""The cubin cache with real cubins, real processes and a real file system."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sparsegen.backends.cuda.cache import CubinCache, cache_key, compile_cached, default_cache, parse_size
from sparsegen.backends.cuda.nvcc import ENVIRONMENT, CompileResult, find_nvcc
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.ir.errors import ToolchainError

ROOT = Path(__file__).resolve().parents[2]
SOURCE = 'extern "C" __global__ void f(double* a) { a[threadIdx.x] *= 2; }'
KEY = cache_key("source", "sm_90a", ("-O3",), "13.0")
needs_nvcc = pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")


def result(size: int = 1000, fill: bytes = b"c") -> CompileResult:
    return CompileResult(fill * size, "// ptx", "log", 1.5)


def test_gives_back_what_was_put(tmp_path: Path) -> None:
    cache = CubinCache(tmp_path / "new" / "folder")
    assert cache.get(KEY) is None
    assert cache.put(KEY, result())
    hit = cache.get(KEY)
    assert hit is not None and hit.cached
    assert (hit.cubin, hit.ptx, hit.log, hit.seconds) == (b"c" * 1000, "// ptx", "log", 1.5)
    info = cache.info()
    assert info.entries == 1 and info.nbytes == cache.path(KEY).stat().st_size and info.folder == cache.folder
    assert cache.clear() == 1 and cache.get(KEY) is None and cache.info().entries == 0


def test_everything_that_decides_is_in_the_key() -> None:
    calls = [
        ("source", "sm_90a", ("-O3",), "13.0"),
        ("source ", "sm_90a", ("-O3",), "13.0"),
        ("source", "sm_80", ("-O3",), "13.0"),
        ("source", "sm_90a", ("-O3", "-fmad=false"), "13.0"),
        ("source", "sm_90a", ("-O3",), "13.1"),
    ]
    assert len({cache_key(*c) for c in calls}) == len(calls)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign"])
def test_a_damaged_entry_counts_as_none(tmp_path: Path, damage: str) -> None:
    cache = CubinCache(tmp_path)
    cache.put(KEY, result())
    path = cache.path(KEY)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes({"cut": data[:-10], "flip": data, "empty": b"", "foreign": b"hello"}[damage])
    assert cache.get(KEY) is None
    assert not path.exists()
    assert cache.put(KEY, result()) and cache.get(KEY) is not None


def test_drops_the_least_recently_used(tmp_path: Path) -> None:
    cache = CubinCache(tmp_path, limit=3500)
    keys = [cache_key(str(i), "sm_80", (), "") for i in range(4)]
    for age, key in enumerate(keys[:3]):
        cache.put(key, result())
        os.utime(cache.path(key), (time.time() - 100 + age,) * 2)
    assert cache.get(keys[0]) is not None  # used again: now the newest
    cache.put(keys[3], result())
    assert [cache.get(k) is not None for k in keys] == [True, False, True, True] or cache.info().nbytes <= 3500
    assert cache.get(keys[1]) is None and cache.get(keys[3]) is not None
    assert cache.info().nbytes <= 3500


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    cache = CubinCache(tmp_path, limit=1)
    cache.put(KEY, result())
    cache.clear()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_written_warns_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = CubinCache(tmp_path / "file" / "cache")
    with pytest.warns(RuntimeWarning, match="SPARSEGEN_CACHE_DIR") as seen:
        assert not cache.put(KEY, result())
        assert not cache.put(KEY, result())
    assert len(seen) == 1 and cache.get(KEY) is None and cache.info().entries == 0


def test_environment_decides_folder_and_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSEGEN_CACHE_DIR", str(tmp_path / "a"))
    monkeypatch.setenv("SPARSEGEN_CACHE_SIZE", "2M")
    cache = default_cache()
    assert cache.folder == tmp_path / "a" and cache.limit == 2 << 20
    assert default_cache() is cache


def test_sizes() -> None:
    assert [parse_size(s) for s in ("17", "1k", "1.5 MiB", "2G", "1TB")] == [17, 1024, 3 << 19, 2 << 30, 1 << 40]
    with pytest.raises(ToolchainError, match="lots"):
        parse_size("lots")


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from sparsegen.backends.cuda.cache import CubinCache, cache_key
from sparsegen.backends.cuda.nvcc import CompileResult
cache = CubinCache(Path(sys.argv[2]), limit=int(sys.argv[3]))
wrong = hits = 0
for round in range(60):
    for i in (n // 2 for n in range(16)):  # each twice: going round more entries than fit would never hit
        key = cache_key(str(i), "sm_80", (), "")
        hit = cache.get(key)
        if hit is not None:
            hits += 1
            wrong += hit.cubin != bytes([i]) * 20000
        if hit is None or round % 5 == 0:
            cache.put(key, CompileResult(bytes([i]) * 20000, None, "", 0.0))
print(wrong, hits)
"""


@pytest.mark.parametrize("limit", [1 << 30, 90_000])
def test_processes_share_it(tmp_path: Path, limit: int) -> None:
    """Four processes read, write and evict the same entries; none ever sees a torn one."""
    command = [sys.executable, "-W", "error", "-c", WRITER, str(ROOT), str(tmp_path / "c"), str(limit)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    found = 0
    for process in running:
        output, _ = process.communicate(timeout=120)
        wrong, hits = map(int, output.split())
        assert process.returncode == 0 and wrong == 0
        found += hits
    assert found > 0
    assert not list((tmp_path / "c").rglob(".tmp-*"))
    assert CubinCache(tmp_path / "c", limit=limit).info().nbytes <= limit


@needs_nvcc
def test_nvcc_runs_once(tmp_path: Path) -> None:
    cache = CubinCache(tmp_path)
    first = compile_cached(SOURCE, "sm_90a", cache=cache)
    again = compile_cached(SOURCE, "sm_90a", cache=cache)
    other = compile_cached(SOURCE, "sm_80", cache=cache)
    assert (first.cached, again.cached, other.cached) == (False, True, False)
    assert again.cubin == first.cubin and again.ptx == first.ptx and again.resources == first.resources
    assert first.ptx is not None and cache.info().entries == 2
    cache.path(next(p.stem for p in tmp_path.rglob("*.cubin1"))).write_bytes(b"torn")
    results = [compile_cached(SOURCE, arch, cache=cache) for arch in ("sm_90a", "sm_80")]
    assert sorted(r.cached for r in results) == [False, True]


@needs_nvcc
def test_threads_share_it(tmp_path: Path) -> None:
    cache, found = CubinCache(tmp_path), []
    threads = [
        threading.Thread(target=lambda: found.append(compile_cached(SOURCE, "sm_90a", cache=cache).cubin))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and len(set(found)) == 1


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_what_nvcc_reads_of_the_environment_decides_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for value in (None, "", "-use_fast_math", "\udcff"):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
        keys.add(cache_key("source", "sm_90a", (), "13.0"))
    assert len(keys) == 4


@needs_nvcc
def test_flags_of_the_environment_are_not_served_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = 'extern "C" __global__ void f(float* a) { a[threadIdx.x] = sinf(a[threadIdx.x]); }'
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-use_fast_math")
    fast = compile_cached(source, "sm_90a", cache=CubinCache(tmp_path))
    monkeypatch.delenv("NVCC_APPEND_FLAGS")
    exact = compile_cached(source, "sm_90a", cache=CubinCache(tmp_path))
    assert not exact.cached and "sin.approx" in str(fast.ptx) and "sin.approx" not in str(exact.ptx)


@needs_nvcc
def test_all_that_nvcc_reads_is_known(tmp_path: Path) -> None:
    """Each word in capitals that its binary holds is set to a flag: those that come into its commands decide."""
    (tmp_path / "a.cu").write_text("")
    command = [str(find_nvcc().path), "-dryrun", "-cubin", "-arch=sm_90a", str(tmp_path / "a.cu")]

    def said(environment: dict[str, str]) -> str:
        return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True).stderr

    here = re.search(r"_HERE_=(.*)", said({}))
    assert here is not None
    words = set(re.findall(rb"(?<=\0)[A-Z_]{4,40}(?=\0)", (Path(here[1]) / "nvcc").read_bytes()))
    names = {word.decode() for word in words} - {"PATH", "HOME", "TMPDIR", "NVCC_CCBIN", "LD_LIBRARY_PATH"}
    found = set(re.findall(r"-D_is_(\w+)", said({name: f"-D_is_{name}" for name in names})))
    assert "NVCC_APPEND_FLAGS" in found and found <= set(ENVIRONMENT)


HEAD = {"cubin": 1000, "has_ptx": True, "log": "log", "seconds": 1.5}
BAD_HEADS: tuple[Any, ...] = (
    b"", b"\xff", b"{", b"[" * 100_000, b"null", b"[]", b"1e999", *({**HEAD, "cubin": n} for n in (
    None, "", -1, 0, 10**9, 1e999, [], 10**30)), *({k: v for k, v in HEAD.items() if k != gone} for gone in HEAD),
    {**HEAD, "cubin": 999}, {**HEAD, "seconds": {}}, {**HEAD, "seconds": "x"}, {**HEAD, "seconds": 10**400},
)  # fmt: skip


@pytest.mark.parametrize("head", BAD_HEADS, ids=lambda head: str(head)[:40])
def test_an_entry_of_a_bad_head_with_a_right_checksum_counts_as_none(tmp_path: Path, head: Any) -> None:
    cache = CubinCache(tmp_path)
    cache.put(KEY, result())
    data = cache.path(KEY).read_bytes()
    magic, start = data[: data.index(b"\n") + 1], data.index(b"\n") + 1 + 32
    size = int.from_bytes(data[start : start + 8], "little")
    new = head if isinstance(head, bytes) else json.dumps(head).encode()
    payload = len(new).to_bytes(8, "little") + new + data[start + 8 + size :]
    cache.path(KEY).write_bytes(magic + hashlib.sha256(payload).digest() + payload)
    assert cache.get(KEY) is None and not cache.path(KEY).exists()
    assert cache.put(KEY, result()) and cache.get(KEY) is not None


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes in folders")
@pytest.mark.parametrize("what", ["pipe", "link to a device", "link to a pipe", "link to nothing"])
def test_an_entry_that_is_no_file_counts_as_none(tmp_path: Path, what: str) -> None:
    """At once: nothing is read of an endless device, and nobody waits for a pipe's other end."""
    cache = CubinCache(tmp_path / "cache")
    path = cache.path(KEY)
    path.parent.mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"device": "/dev/zero", "pipe": tmp_path / "pipe"}.get(what.split()[-1], tmp_path / "none"))
    assert cache.get(KEY) is None
    assert cache.put(KEY, result()) and cache.get(KEY) is not None and (tmp_path / "pipe").exists()


def test_nothing_outside_the_folder_is_deleted(tmp_path: Path) -> None:
    """Neither what a link in it leads to, nor what a folder holds that a link stands for."""
    cache, outside = CubinCache(tmp_path / "cache", limit=1), tmp_path / "outside"
    outside.mkdir()
    kept = [outside / f"{KEY}.cubin1", outside / ".tmp-old"]
    for file in kept:
        file.write_text("mine")
        os.utime(file, (0, 0))
    cache.put(KEY, result())
    (cache.folder / "00").symlink_to(outside, target_is_directory=True)
    (cache.folder / KEY[:2] / "linked.cubin1").symlink_to(kept[0])
    assert cache.info().entries == 2
    cache.put(cache_key("other", "sm_80", (), ""), result())
    cache.clear()
    assert cache.info().entries == 0 and all(file.read_text() == "mine" for file in kept)
