"""Kernel arguments lie where the device's calling convention wants them."""

from __future__ import annotations

import ctypes
import struct

import pytest

from sparsegen.backends.cuda.args import PackedArgs
from sparsegen.ir.errors import ArrayError


def words(args: PackedArgs) -> bytes:
    return ctypes.string_at(ctypes.addressof(args.buffer), args.nbytes)


def test_natural_alignment() -> None:
    weights = struct.pack("<3d", 0.5, 0.125, 2.0)
    args = PackedArgs([("ptr", 0x1000), ("i32", -5), ("ptr", 0x2000), ("f32", 1.5), ("bytes", weights), ("u32", 7)])
    assert words(args) == struct.pack("<Qi4xQf4x3dI", 0x1000, -5, 0x2000, 1.5, 0.5, 0.125, 2.0, 7)
    base = ctypes.addressof(args.buffer)
    assert [p - base for p in args.table] == [0, 8, 16, 24, 32, 56]
    assert args.pointers == 2 and args.address == ctypes.addressof(args.table)


def test_structs_may_ask_for_more_alignment() -> None:
    args = PackedArgs([("i32", 1), ("bytes@16", b"x" * 16)])
    assert args.nbytes == 32 and words(args)[16:] == b"x" * 16


@pytest.mark.parametrize("kinds", [["ptr", "ptr", "i64"], ["ptr", "i32", "ptr"], ["i32", "ptr", "ptr"]])
def test_only_pointers_change(kinds: list[str]) -> None:
    args = PackedArgs([(kind, 3) for kind in kinds])
    args.set_pointers([0xAAAA, 0xBBBB])
    expected = iter([0xAAAA, 0xBBBB])
    assert words(args) == words(PackedArgs([(kind, next(expected) if kind == "ptr" else 3) for kind in kinds]))


def test_a_copy_is_independent() -> None:
    args = PackedArgs([("ptr", 1), ("bytes", b"abcd"), ("f64", 0.1)])
    twin = args.copy()
    args.set_pointers([99])
    assert words(twin) == words(PackedArgs([("ptr", 1), ("bytes", b"abcd"), ("f64", 0.1)]))


def test_wrong_values_are_refused() -> None:
    with pytest.raises(ArrayError, match="u32"):
        PackedArgs([("u32", -1)])
    with pytest.raises(ArrayError, match="unknown kind"):
        PackedArgs([("int", 1)])
    with pytest.raises(ArrayError, match="4 bytes"):
        PackedArgs([("bytes", b"12345678")]).set(0, b"1234")
    with pytest.raises((ValueError, struct.error)):
        PackedArgs([("ptr", 0), ("i32", 0), ("ptr", 0)]).set_pointers([1])


def test_tensor_maps_follow_their_pointers() -> None:
    """Each is made once for an address, and lies behind the other arguments at a multiple of 128 bytes."""
    made: list[int] = []

    def encode(address: int) -> bytes:
        made.append(address)
        return bytes([address % 251]) * 128

    args = PackedArgs([("ptr", 0), ("ptr", 0), ("i32", 5)], [(1, encode), (0, encode)])
    assert args.nbytes == 128 + 2 * 128 and not made
    addresses = [args.table[i] - ctypes.addressof(args.buffer) for i in range(5)]
    assert addresses == [0, 8, 16, 128, 256]
    for pointers in ([7, 9], [7, 9], [8, 9], [7, 9], [7, 9]):
        args.set_pointers(pointers)
        raw = bytes(args.buffer)
        assert raw[128:256] == bytes([9]) * 128 and raw[256:] == bytes([pointers[0]]) * 128
    assert made == [9, 7, 8]
    twin = args.copy()
    twin.set_pointers([6, 9])
    assert bytes(twin.buffer)[256:] == bytes([6]) * 128 and bytes(args.buffer)[256:] == bytes([7]) * 128
    for address in range(1000, 1200):
        args.set_pointers([address, 9])
        assert bytes(args.buffer)[256:] == bytes([address % 251]) * 128
