"""Occupancy against NVIDIA's own header, compiled for the host."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from sparsegen.backends.cuda.resources import parse_ptxas_log
from sparsegen.backends.cuda.toolchain import find_tool
from sparsegen.cost.devices import load_profile, names
from sparsegen.cost.occupancy import occupancy

ORACLE = """
#include <cuda_occupancy.h>
#include <cstdio>
#include <cstring>
int main() {
    int sm, threads_sm, registers, shared, threads; size_t shared_sm, reserved;
    while (scanf("%d %d %zu %zu", &sm, &threads_sm, &shared_sm, &reserved) == 4 &&
           scanf("%d %d %d", &registers, &shared, &threads) == 3) {
        cudaOccDeviceProp p; memset(&p, 0, sizeof p);
        p.computeMajor = sm / 10; p.computeMinor = sm % 10; p.maxThreadsPerBlock = 1024;
        p.maxThreadsPerMultiprocessor = threads_sm; p.regsPerBlock = p.regsPerMultiprocessor = 65536; p.warpSize = 32;
        p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = shared_sm; p.numSms = 1;
        p.sharedMemPerBlockOptin = shared_sm - reserved; p.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes f; memset(&f, 0, sizeof f);
        f.maxThreadsPerBlock = 1024; f.numRegs = registers; f.maxDynamicSharedSizeBytes = shared;
        f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        cudaOccDeviceState s; s.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        cudaOccResult r; memset(&r, 0, sizeof r);
        int status = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &s, threads, shared);
        printf("%d\\n", status == 0 ? r.activeBlocksPerMultiprocessor : -status);
    }
}
"""


def header_folder() -> Path | None:
    nvcc = find_tool("nvcc")
    if nvcc is None:
        return None
    run = subprocess.run([str(nvcc.path), "--dryrun", "-E", "x.cu"], capture_output=True, text=True)
    for word in run.stderr.replace('"', " ").split():
        if word.startswith("-I") and (Path(word[2:]) / "cuda_occupancy.h").is_file():
            return Path(word[2:])
    return None


def test_equals_nvidias_header(tmp_path: Path) -> None:
    compiler, folder = shutil.which("g++") or shutil.which("c++"), header_folder()
    if compiler is None or folder is None:
        pytest.skip("no C++ compiler or no cuda_occupancy.h")
    (tmp_path / "oracle.cpp").write_text(ORACLE)
    program = tmp_path / "oracle"
    subprocess.run([compiler, "-w", f"-I{folder}", str(tmp_path / "oracle.cpp"), "-o", str(program)], check=True)
    shared = [0, 1, 512, 1000, 8192, 16000, 33000, 48 * 1024, 49153, 63 * 1024, 99 * 1024, 100 * 1024, 227 * 1024]
    registers = [1, 16, 24, 31, 32, 33, 40, 63, 64, 65, 96, 128, 168, 200, 255]
    threads = [1, 32, 33, 64, 96, 128, 160, 192, 256, 288, 384, 512, 640, 768, 1024]
    devices = [d for d in map(load_profile, names()) if not d.explain_only]
    cases = list(itertools.product(devices, registers, shared, threads))
    rows = (
        f"{m.cc.replace('.', '')} {m.max_threads_sm} {m.smem_sm} {m.smem_sm - m.smem_block} {r} {s} {t}"
        for m, r, s, t in cases
    )
    done = subprocess.run([str(program)], input="\n".join(rows), capture_output=True, text=True, check=True)
    wanted = [int(line) for line in done.stdout.split()]
    assert len(wanted) == len(cases)
    wrong = [
        (m.name, r, s, t, blocks, occupancy(r, s, t, m))
        for (m, r, s, t), blocks in zip(cases, wanted, strict=True)
        if occupancy(r, s, t, m).blocks != max(0, blocks)
    ]
    assert not wrong, wrong[:5]


def test_names_what_limits() -> None:
    h200 = load_profile("h200")
    assert occupancy(32, 0, 1024, h200).limited_by == "threads"
    assert occupancy(32, 0, 32, h200).limited_by == "blocks"
    assert occupancy(255, 0, 256, h200) == occupancy(250, 0, 256, h200)
    assert occupancy(128, 0, 256, h200).limited_by == "registers"
    assert occupancy(32, 227 * 1024, 256, h200).blocks == 1
    too_much = occupancy(32, 227 * 1024 + 1, 256, h200)
    assert too_much.blocks == 0 and too_much.limited_by == "shared memory" and too_much.fraction == 0


def test_log_without_kernels_is_empty() -> None:
    assert parse_ptxas_log("ptxas info    : 0 bytes gmem\n") == {}
