"""Each op, as it is printed: the same numbers from the text as from the emulator."""

from __future__ import annotations

import pytest

from sparsegen.backends.cuda.ptx_ops import all_helpers
from sparsegen.ir.node import OPS, walk
from tests.printed import units
from tests.printed.compare import differences, on_emulator, printed
from tests.printed.program import needs_compiler

pytestmark = needs_compiler


@pytest.mark.parametrize("name", units.UNITS)
def test_the_text_means_what_the_emulator_does(name: str) -> None:
    module = units.unit(name)
    arrays = units.arrays(module)
    made = printed(module, arrays)
    assert not differences(made, on_emulator(module, arrays))
    assert any((made[role].tobytes() != a.tobytes()) for role, a in arrays.items())


def test_every_op_and_every_instruction_stands_in_a_unit() -> None:
    modules = [units.unit(name) for name in units.UNITS]
    used = {type(op) for module in modules for op in walk(module.funcs)}
    assert used == {op for name, op in OPS.items() if name.startswith("warp.")}
    texts = "".join(units.text(module) for module in modules)
    assert not [h.name for h in all_helpers() if f" {h.name}(" not in texts]
