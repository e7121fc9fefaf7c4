"""What the encoders stored before formats became axes, bit for bit: hashes of arrays, and two files of version 1.

``python -m tests.formats.test_formats_frozen`` writes both anew, with the encoders at hand.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from sparsegen.formats import load, sparse
from tests.formats.matrices import FORMATS, KINDS, bits, weights

FROZEN: Final = Path(__file__).parent / "frozen"
#: Sizes below, at and above those of quads, tiles, groups and of what an encoder takes at once (2097152 elements).
SHAPES: Final = [
    (1, 1), (1, 7), (9, 1), (3, 5), (15, 63), (16, 64), (17, 65), (31, 200), (64, 64), (65, 64), (64, 128), (100, 130),
    (127, 3), (200, 333), (257, 511), (1000, 777), (3, 9000), (9000, 3), (1536, 1500), (4100, 1030),
]  # fmt: skip
SPARSITIES: Final = (0.0, 0.3, 0.6, 0.95, 1.0)


def digest(arrays: dict[str, Any]) -> str:
    """The sha256 of all arrays: names, dtypes, sizes, bytes."""
    said = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        said.update(f"{name} {array.dtype.str} {array.size} ".encode())
        said.update(array.tobytes())
    return said.hexdigest()


def digests(format: str, kind: str) -> dict[str, str]:
    """The digest of each matrix; its seed says which one it is, and every third has empty rows."""
    found = {}
    for seed, (shape, sparsity) in enumerate((shape, sparsity) for shape in SHAPES for sparsity in SPARSITIES):
        w = weights(shape, sparsity, kind, seed)
        w[:: 3 + seed % 5] = w[:: 3 + seed % 5] if seed % 3 else 0
        found[f"{shape[0]}x{shape[1]} {sparsity}"] = digest(sparse(w, format).arrays)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", FORMATS)
def test_the_bytes_stay(format: str, kind: str) -> None:
    frozen = json.loads((FROZEN / "digests.json").read_text(encoding="utf-8"))[f"{format} {kind}"]
    assert digests(format, kind) == frozen and len(frozen) == len(SHAPES) * len(SPARSITIES)


def small(format: str) -> Any:
    """What the frozen file of a format holds."""
    return weights((18, 70), 0.6, seed=5)


@pytest.mark.parametrize("format", FORMATS)
def test_files_of_version_1_are_read(format: str) -> None:
    w, read = small(format), load(FROZEN / f"{format}.sgw")
    made = sparse(w, format)
    assert read.format == format and np.array_equal(bits(read.to_dense()), bits(w)) and repr(read) == repr(made)
    assert digest(read.arrays) == digest(made.arrays)


if __name__ == "__main__":
    FROZEN.mkdir(exist_ok=True)
    every = {f"{format} {kind}": digests(format, kind) for format in FORMATS for kind in KINDS}
    (FROZEN / "digests.json").write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")
    for name in FORMATS:
        sparse(small(name), name).save(FROZEN / f"{name}.sgw")
