"""Constant tables as text: every type bit for bit, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegen.ir.errors import IRError
from sparsegen.ir.module import Module
from sparsegen.ir.parse import parse_module
from sparsegen.ir.table_text import SHORT
from sparsegen.ir.text import print_module
from sparsegen.ir.types import DTYPES

STORED = [t for t in DTYPES.values() if t.name not in ("tf32", "s4", "u4")]


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5), (SHORT,), (SHORT + 1,), (40, 30)])
@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_tables_come_back_bit_for_bit(dtype, shape) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(len(shape))
    values = rng.random(shape) if dtype.kind == "float" else rng.integers(0, min(dtype.range[1], 10**9) + 1, shape)
    table = np.asarray(values).astype(dtype.numpy())
    m = Module("m", (), (), {"t.w": table})
    text = print_module(m)
    assert f'constant "t.w" {dtype}[{", ".join(map(str, shape))}]' in text and ("zlib" in text) is (table.size > SHORT)
    back = parse_module(text)
    assert back == m and back.constants["t.w"].shape == shape and print_module(back) == text


def test_special_values_and_equality() -> None:
    m = Module("m", (), (), {"t": np.array([np.inf, -np.inf, -0.0, 5e-324])})
    assert parse_module(print_module(m)) == m and hash(m) == hash(parse_module(print_module(m)))
    assert m != Module("m", (), (), {"t": np.array([np.inf, -np.inf, 0.0, 5e-324])})
    assert m != Module("m", (), (), {"t": m.constants["t"].reshape(2, 2)}) and m != Module("m", ()) and m != "m"


@pytest.mark.parametrize(("text", "said"), [
    ('constant "t" f64[3] [1.0, 2.0]', "a table of 3 elements lists 2"),
    ('constant "t" u8[1] [256]', "a table of u8 cannot hold 256"),
    ('constant "t" s32[1] [1.5]', "a table of s32 cannot hold 1.5"),
    ('constant "t" f32[1] ["a"]', "a table of f32 cannot hold 'a'"),
    ('constant "t" f64[1] [1.0] constant "t" f64[1] [1.0]', "'t' is given a second time"),
    ('constant "t" f64[9] zlib ["AAAA"]', "cannot read the data of a table"),
    ('constant "t" f64[9] zlib ["?"]', "cannot read the data of a table"),
    ('constant "t" f64[9] zlib ["é"]', "cannot read the data of a table"),
    ('constant "t" f64[-1] []', "expected an extent"),
    ('constant "t" x[1] []', "expected a type"),
])  # fmt: skip
def test_wrong_tables_are_refused(text: str, said: str) -> None:
    with pytest.raises(IRError, match=said) as e:
        parse_module(f'module "m"\n{text}\n')
    assert e.value.loc is not None


@pytest.mark.parametrize("shape", ["8, 5", "8, 7"])
def test_a_shape_that_does_not_fit_the_data_is_refused(shape: str) -> None:
    text = print_module(Module("m", (), (), {"t": np.arange(48.0).reshape(8, 6)}))
    with pytest.raises(IRError, match=r"a table of \d+ bytes has data of"):
        parse_module(text.replace("[8, 6]", f"[{shape}]"))


def test_an_array_of_no_type_of_ours_is_refused() -> None:
    with pytest.raises(IRError, match="array of complex128"):
        print_module(Module("m", (), (), {"t": np.zeros(2, complex)}))
