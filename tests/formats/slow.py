"""The two formats in plain Python, element by element, straight from their descriptions: a check of the encoders."""

from __future__ import annotations

from typing import Any

import numpy as np


def bitmap(shape: tuple[int, int], masks: Any, values: Any, index: Any) -> Any:
    """uint16 bits [M, K] of a matrix in bitmap tiles; asserts what the index and the chunks must hold."""
    m, k = shape
    strips, slabs = -(-m // 16), -(-k // 64)
    assert masks.shape == (slabs, strips, 32) and index.shape == (slabs * strips + 1, 4)
    data = values.tobytes()
    out = np.zeros((16 * strips, 64 * slabs), np.uint16)
    chunk = 0
    for s in range(slabs):
        for r in range(strips):
            begins, end = list(map(int, index[s * strips + r])), int(index[s * strips + r + 1, 0]) // 8
            start = begins[0] // 8
            assert begins[0] == 8 * chunk
            i = 0
            for f in range(4):
                assert begins[f] == 8 * start + 2 * i
                for lane in range(32):
                    g, t = lane // 4, lane % 4
                    for h in range(2):
                        for j in range(4):
                            if int(masks[s, r, lane]) >> (f + 4 * j + 16 * (1 - h)) & 1:
                                at = 8 * (start + (i >> 2)) + (i & 3)
                                value = data[at] | data[at + 4] << 8
                                assert value != 0
                                out[16 * r + g + 8 * h, 64 * s + 16 * f + 4 * t + j] = value
                                i += 1
            assert end == start + -(-i // 4)
            while i % 4:  # the tail of the last chunk
                at = 8 * (start + (i >> 2)) + (i & 3)
                assert data[at] == data[at + 4] == 0
                i += 1
            chunk = end
    assert all(int(word) == 8 * chunk for word in index[-1])
    assert len(data) == 8 * (chunk + 4) and not any(data[8 * chunk :])
    assert not out[m:].any() and not out[:, k:].any()
    return out[:m, :k]


def tca_bme(shape: tuple[int, int], offsets: Any, bitmaps: Any, values: Any) -> Any:
    """uint16 bits [M, K] of a matrix in nested bitmap tiles; asserts what the offsets and the filling must hold."""
    m, k = shape
    down, across = -(-m // 64), -(-k // 64)
    assert offsets.shape == (down * across + 1,) and bitmaps.shape == (down, across, 64)
    bitmaps = bitmaps.ravel()
    out = np.zeros((64 * down, 64 * across), np.uint16)
    at = tile = 0
    for group in range(down * across):
        assert offsets[group] == at
        for sixteen in range(16):
            for eight in range(4):
                row = group // across * 64 + sixteen // 4 * 16 + eight % 2 * 8
                col = group % across * 64 + sixteen % 4 * 16 + eight // 2 * 8
                for bit in range(64):
                    if int(bitmaps[tile]) >> bit & 1:
                        assert values[at] != 0
                        out[row + bit // 8, col + bit % 8] = values[at]
                        at += 1
                tile += 1
        while at % 8:  # 16 bytes
            assert values[at] == 0
            at += 1
    assert offsets[-1] == at == values.size
    assert not out[m:].any() and not out[:, k:].any()
    return out[:m, :k]
