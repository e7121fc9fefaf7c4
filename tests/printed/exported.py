"""Exported files called as a C++ program calls them, on the machine's own processor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sparsegen.run.emulator import poisoned
from sparsegen.run.host import flat
from tests.printed.program import Array, as_cpp, built, ran

#: A second call has the workspace as the first one leaves it.
_CALLER = """
struct Any {{
  void* at;
  template <typename T> operator T*() const {{ return static_cast<T*>(at); }}
}};
{scalars}static void call() {{
  static void* space = nullptr;
  if (!space && {name}_workspace_bytes()) cudaMalloc(&space, {name}_workspace_bytes());
  if ({name}_run({arguments}space, nullptr)) cpu::fault("the call failed");
  for (const cpu::Array& a : cpu::allocated) cpu::untouched_around(a, 0);
}}
"""


def called(
    file: Path, given: Mapping[str, Array], new: Mapping[str, Array], order: tuple[str, ...],
    scalars: Array | None = None,
) -> None:  # fmt: skip
    """``NAME_run`` of an exported file on packed arrays by name; ``order``: that of its arguments; ``scalars``: those
    of its time steps, if it takes any."""
    name = file.stem
    arguments = "".join(f"Any{{cpu::arguments[{i}]}}, " for i in range(len(order)))
    table = ""
    if scalars is not None:
        kind, arguments = {4: "float", 8: "double"}[scalars.itemsize], f"{arguments}scalars, "
        table = f"static const {kind} scalars[] = {{{', '.join(str(float(x)) for x in scalars.flat)}}};\n"
    include = f'#include "{file.parent}/{name}.h"\n'
    source = file.read_text() + include + _CALLER.format(name=name, arguments=arguments, scalars=table)
    path = built(as_cpp(source, ["{call, {}, 0, 0, 1},"]))
    held = {n: flat(given[n]) if n in given else poisoned(new[n].size, new[n].dtype) for n in order}
    starts = dict.fromkeys(order, 16)
    line = (0, *range(len(order)))
    made, again = (ran(path, held, starts, lines, seconds=20) for lines in ([line], [line, line]))
    for n, a in new.items():
        assert made[n].tobytes() == again[n].tobytes()
        a[...] = made[n].reshape(a.shape)
    for n in given.keys() & made.keys():
        np.testing.assert_array_equal(made[n].view(np.uint8), flat(given[n]).view(np.uint8))


def declared(file: Path) -> list[str]:
    """The names of the arguments of ``NAME_run``, by its header."""
    (found,) = re.findall(rf"^int {file.stem}_run\((.*)\);", file.with_suffix(".h").read_text(), re.M)
    return [re.split(r"[ *]+", argument)[-1] for argument in found.split(", ")]
