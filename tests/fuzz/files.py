"""Files of matrices with something changed and the checksum made right: a matrix that means something, or refused."""

from __future__ import annotations

import hashlib
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import sparsegen as sg
from sparsegen.formats import file as layout
from tests import nm_kit
from tests.fuzz.finding import Draw, Finding, refused

JUNK: tuple[Any, ...] = (0, -1, 1, 63, 10**12, 10**30, 1.5, "", "f32", "bitmap", None, [], {}, [10**6, 10**6], True)

#: Of formats that have any.
OPTIONS: dict[str, dict[str, Any]] = {
    "nm": {"n": 4, "m": 8, "vector": (3, 2)},
    "hybrid": {"tile": 16},
    "blocked_ell": {"tile": 16},
}


@cache
def saved(format: str, dtype: str) -> bytes:
    """The bytes of a small matrix."""
    rng = np.random.default_rng(3)
    w = nm_kit.pruned(40, 70, 2, 4) if format == "nm" else rng.standard_normal((40, 70)) * (rng.random((40, 70)) < 0.3)
    options: dict[str, Any] = OPTIONS.get(format, {})
    w = (40 * w).astype(np.int8) if dtype == "i8" else w.astype(np.float16 if dtype == "f16" else np.float32)
    matrix = sg.sparse(sg.prune(w, **options) if format == "nm" else w, format, **options)
    with tempfile.TemporaryDirectory() as folder:
        matrix.save(Path(folder) / "w.sg")
        return (Path(folder) / "w.sg").read_bytes()


def sealed(header: bytes, data: bytes, version: int = layout.VERSION) -> bytes:
    """A file with a right length and checksum."""
    total = layout._FIXED.size + len(header) + len(data) + layout._DIGEST
    body = layout._FIXED.pack(layout.MAGIC, version, len(header), total) + header + data
    return body + hashlib.sha256(body).digest()


def _other(value: Any, draw: Draw) -> Any:
    """The header with one value somewhere in it replaced or gone."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        if draw.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _other(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.7:
        at = draw.randrange(len(value))
        return [*value[:at], _other(value[at], draw), *value[at + 1 :]]
    return draw.choice(JUNK)


def matrices(draw: Draw) -> None:
    """A file that loads gives a matrix whose product, if there are kernels for it, is that of its dense form."""
    kinds = (("bitmap", "f16"), ("tca_bme", "f16"), ("csr", "f32"), ("nm", "f16"), ("sr_bcrs", "i8"), ("bcrs", "f16"),
             ("hybrid", "f16"), ("blocked_ell", "f16"))  # fmt: skip
    format, dtype = draw.choice(kinds)
    whole = saved(format, dtype)
    _, version, length, _ = layout._FIXED.unpack(whole[: layout._FIXED.size])
    start = layout._FIXED.size
    header, data = whole[start : start + length], bytearray(whole[start + length : -layout._DIGEST])
    match draw.randrange(5):
        case 0:
            header = json.dumps(_other(json.loads(header), draw)).encode()
        case 1:
            at = draw.randrange(len(data) - 8)
            data[at : at + draw.choice((1, 2, 4))] = draw.randbytes(4)
        case 2:  # a bit elsewhere in its word: as many are set as before
            at = draw.randrange(len(data) // 8) * 8
            word = int.from_bytes(data[at : at + 8], "little")
            old, new = draw.randrange(64), draw.randrange(64)
            if word >> old & 1 and not word >> new & 1:
                data[at : at + 8] = (word ^ 1 << old ^ 1 << new).to_bytes(8, "little")
        case 3:
            data = data[: draw.randrange(len(data))] + draw.randbytes(draw.choice((0, 0, 64)))
        case _:
            header = draw.choice((b"", b"[" * 100_000, b"\xff", b'{"a": 1', b"null", header[:-1]))
    made = sealed(header, bytes(data), version)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.sg"
        path.write_bytes(made)
        how = f"{format}: header {header[:300]!r}, data {hashlib.sha256(data).hexdigest()[:8]}"
        w = refused(lambda: sg.load(path), how)
    if w is None:
        return
    dense = refused(w.to_dense, how)
    if dense is None or format in ("tca_bme", "sr_bcrs") or not np.isfinite(dense).all():
        return
    kernel = refused(lambda: sg.compile(sg.spmm(w, n=8), device="h200", backend="emulator"), how)
    if kernel is not None:
        given = kernel.random(1)
        got = refused(lambda: kernel(**given), how)
        wanted = dense.astype(float) @ given["x"].astype(float)
        bound = 2.0**-7 * (1 + np.abs(dense).astype(float) @ np.abs(given["x"]).astype(float))
        if got is not None and not (np.abs(got.astype(float) - wanted) <= bound).all():
            raise Finding("the product is not that of to_dense()", how)
