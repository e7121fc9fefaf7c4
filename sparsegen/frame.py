"""What a run hands out: the fields after so many time steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Frame:
    """The fields of a run after ``step`` time steps.

    ``fields`` is what ``k(u0, steps=step)`` gives back, of the library and on the device of the run's inputs: an array;
    of a field of several time levels a tuple, newest first; of several fields a tuple of these.  The run goes on from
    these very arrays: do not write to them.  ``names`` are those of the fields.  ``rate``: cells a second that were
    worked out since the last frame, None where none were.  ``records``: what each group of receivers has recorded by
    then, NumPy arrays [steps, points]: from the run's first step on, of a resumed run from the checkpoint on.
    """

    step: int
    fields: Any
    names: tuple[str, ...]
    rate: float | None = None
    records: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __getitem__(self, name: str) -> Any:
        """The newest level of a field; KeyError for a name that is none."""
        if name not in self.names:
            raise KeyError(f"{name!r}: the fields are {', '.join(self.names)}")
        field = self.fields[self.names.index(name)] if len(self.names) > 1 else self.fields
        return field[0] if isinstance(field, tuple) else field

    def __repr__(self) -> str:
        rate = "" if self.rate is None else f", {self.rate:.2g} cells/s"
        return f"<Frame of {', '.join(self.names)} after {self.step} steps{rate}>"
