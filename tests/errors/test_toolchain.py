"""nvcc missing, failing, too old, too slow: each says what, and what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparsegen.backends.cuda import sass, toolchain
from sparsegen.backends.cuda.nvcc import Nvcc, check_arch, compile_cubin
from sparsegen.backends.cuda.runtime import open_runtime, stream_handle
from sparsegen.backends.cuda.toolchain import Tool, find_tool
from sparsegen.ir.errors import DeviceError, SparsegenError, ToolchainError

SOURCE = 'extern "C" __global__ void f(double* a) { a[0] = 1; }'
needs_nvcc = pytest.mark.skipif(find_tool("nvcc") is None, reason="no nvcc")


@pytest.fixture
def no_toolkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with nothing on PATH and no wheels."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(toolchain, "DEFAULT_FOLDER", tmp_path / "nothing")
    return tmp_path


def fake_tool(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)


def test_no_nvcc_names_the_extra(no_toolkit: Path) -> None:
    with pytest.raises(ToolchainError, match=r"sparsegen\[nvcc\]") as e:
        compile_cubin(SOURCE, "sm_90a")
    assert "CUDA_HOME" in str(e.value) and "PATH" in str(e.value)


def test_no_disassembler_names_the_wheel(no_toolkit: Path) -> None:
    with pytest.raises(ToolchainError, match="nvidia-cuda-nvdisasm"):
        sass.disassemble(b"")


@pytest.mark.skipif(sys.platform == "win32", reason="shell scripts")
def test_order_of_the_places(no_toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_tool(no_toolkit / "site" / "nvidia" / "cu13" / "bin" / "nvcc", "")
    fake_tool(no_toolkit / "site" / "nvidia" / "cu12" / "bin" / "nvcc", "")
    monkeypatch.setattr(sys, "path", [str(no_toolkit / "site")])
    tool = find_tool("nvcc")
    if tool is None or "site" not in tool.path.parts:
        pytest.skip("NVIDIA's wheels were imported before this test")
    assert tool.found_in == "wheel" and "cu13" in tool.path.parts
    fake_tool(no_toolkit / "toolkit" / "bin" / "nvcc", "")
    monkeypatch.setenv("CUDA_HOME", str(no_toolkit / "toolkit"))
    tool = find_tool("nvcc")
    assert tool is not None and tool.found_in == "CUDA_HOME"
    fake_tool(no_toolkit / "nvcc", "")
    monkeypatch.setenv("PATH", str(no_toolkit) + ":/nowhere")
    tool = find_tool("nvcc")
    assert tool is not None and tool.found_in == "PATH"


@pytest.mark.skipif(sys.platform == "win32", reason="shell scripts")
def test_an_nvcc_that_is_none(no_toolkit: Path) -> None:
    fake_tool(no_toolkit / "nvcc", "echo broken; exit 3\n")
    with pytest.raises(ToolchainError, match="broken"):
        compile_cubin(SOURCE, "sm_90a")


@needs_nvcc
def test_a_source_that_nvcc_refuses_is_kept() -> None:
    with pytest.raises(ToolchainError, match=r'kernel.cu\(1\): error: identifier "x" is undefined') as e:
        compile_cubin("__global__ void f() { x = 1; }", "sm_90a")
    kept = re.search(r"kept in (\S+kernel\.cu)", str(e.value))
    assert kept is not None and Path(kept[1]).read_text() == "__global__ void f() { x = 1; }"
    assert "nvcc -cubin" in (Path(kept[1]).parent / "nvcc.log").read_text()


@needs_nvcc
def test_a_compilation_that_takes_too_long() -> None:
    with pytest.raises(ToolchainError, match=r"took too long: killed after 0\.05 s"):
        compile_cubin(SOURCE, "sm_90a", timeout=0.05)


@needs_nvcc
@pytest.mark.skipif(sys.platform == "win32", reason="shell scripts")
def test_no_host_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = find_tool("nvcc")
    assert tool is not None
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tool.path.parent.parent))
    with pytest.raises(ToolchainError, match=r"host C\+\+ compiler"):
        compile_cubin(SOURCE, "sm_90a")


@pytest.mark.parametrize(
    ("arch", "reason"),
    [
        ("sm_70", "it starts at sm_75"),
        ("sm_130", "it ends at sm_121"),
        ("sm_80a", "begins with sm_90"),
        ("sm_91", "unknown"),
        ("h200", "unknown arch"),
        ("90", "unknown arch"),
    ],
)
def test_archs_that_cannot_be_made(arch: str, reason: str) -> None:
    nvcc = Nvcc(Tool("nvcc", Path("nvcc"), "PATH"), "13.0", "13.0.88", (75, 80, 86, 89, 90, 100, 120, 121))
    with pytest.raises(ToolchainError, match=reason) as e:
        check_arch(arch, nvcc)
    assert e.value.hint


def test_something_that_is_no_cubin() -> None:
    if find_tool("nvdisasm") is None and find_tool("cuobjdump") is None:
        pytest.skip("no disassembler")
    with pytest.raises(ToolchainError, match="failed"):
        sass.disassemble(b"hello")


def test_no_gpu_is_a_device_error() -> None:
    """Whatever is missing here (packages, driver, device 99), it is one kind of error with a remedy."""
    for kind in ("pycuda", "driver"):
        with pytest.raises(DeviceError) as e:
            open_runtime(99, kind)
        assert e.value.hint


def test_streams() -> None:
    class Torch:
        cuda_stream = 17

    class Cupy:
        ptr = 18

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 19

    assert [stream_handle(s) for s in (None, 0, 5, Torch(), Cupy(), Protocol())] == [None, 0, 5, 17, 18, 19]
    with pytest.raises(DeviceError, match="not a stream"):
        stream_handle("main")


def test_importing_loads_no_gpu_package() -> None:
    root = Path(__file__).resolve().parents[2]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import sparsegen.arrays, sparsegen.run.fast, sparsegen.backends.cuda.cache\n"
        "import sparsegen.backends.cuda.driver, sparsegen.backends.cuda.pycuda_runtime, sparsegen.backends.cuda.graph\n"
        "print([m for m in ('pycuda', 'cuda', 'torch', 'cupy', 'sympy', 'networkx', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_all_are_sparsegen_errors() -> None:
    assert issubclass(ToolchainError, SparsegenError) and issubclass(DeviceError, SparsegenError)
