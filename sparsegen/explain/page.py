"""What a page holds, the same for all kinds of kernels.  ``dataclasses.asdict`` of it is the JSON.

docs/explain.md describes the fields; VERSION goes up when one of them changes its name or its meaning, or goes away.
Times are seconds; ``seconds`` alone is of a call of the kernel, with all its time steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VERSION = 1
Kind = Literal["stencil", "product", "update", "attention"]


@dataclass(frozen=True)
class Fact:
    """A line of words: of the head of the page, or of its end."""

    label: str
    text: str


@dataclass(frozen=True)
class Device:
    """The profile that everything is predicted for."""

    name: str
    arch: str
    explain_only: bool


@dataclass(frozen=True)
class Prediction:
    """The model's times: of a launch (a pass of ``steps`` time steps, a product), and of a whole call."""

    launch: float
    steps: int
    seconds: float
    rate: float
    binds: str


@dataclass(frozen=True)
class Measurement:
    """A measured call beside the predicted one; ``off``: predicted / measured - 1."""

    seconds: float
    predicted: float
    off: float


@dataclass(frozen=True)
class Term:
    """A part of a launch's time; parts overlap, so the shares of the predicted time do not add up to 1."""

    name: str
    seconds: float
    share: float
    binds: bool
    reason: str


@dataclass(frozen=True)
class Standing:
    """A schedule beside the chosen one; ``ratio``: its time over that of the kernel."""

    family: str
    schedule: str
    seconds: float
    ratio: float
    rate: float
    binds: str
    chosen: bool
    verdict: str


@dataclass(frozen=True)
class Absent:
    """A family with no legal schedule, and why."""

    family: str
    reason: str


@dataclass(frozen=True)
class Refusal:
    """Schedules of a family that are refused for one kind of reason, and one of them."""

    count: int
    family: str
    example: str
    reason: str


@dataclass(frozen=True)
class Refused:
    """All that cannot run there; ``groups`` has the most frequent of ``kinds`` kinds of reason."""

    total: int
    kinds: int
    groups: tuple[Refusal, ...]


@dataclass(frozen=True)
class Change:
    """Something else than what the kernel was compiled for, and what would be chosen then.

    ``kind``: ``figure`` (of the device, doubled), ``grid``, ``device``, ``columns`` (of x), ``sparsity`` (hypothetical)
    or ``steps``.  ``changes``: whether the choice would be another one.  ``dense``: seconds of the dense product.
    """

    kind: Literal["figure", "grid", "device", "columns", "sparsity", "steps"]
    what: str
    schedule: str | None
    seconds: float | None
    rate: float | None
    binds: str | None
    changes: bool
    note: str = ""
    dense: float | None = None


@dataclass(frozen=True)
class Alternative:
    """A form of the paper's ablation; ``gain`` over the form before it, predicted here, and the paper's on an A100."""

    name: str
    schedule: str
    rate: float | None
    gain: float | None
    paper: float | None
    binds: str
    refused: str = ""


@dataclass(frozen=True)
class Paper:
    """ConvStencil's own alternatives on this device; ``remarks`` says where and why its order does not hold.

    ``case``: the paper's stencil, which its gains are of.
    """

    case: str
    fuse: int
    edge: int
    alternatives: tuple[Alternative, ...]
    as_published: bool
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Roof:
    """A limit: ``bandwidth`` in bytes a second, or ``compute`` in operations a second."""

    name: str
    kind: Literal["bandwidth", "compute"]
    value: float


@dataclass(frozen=True)
class Mark:
    """A schedule on the roofline: useful operations a byte of DRAM traffic, and a second."""

    family: str
    schedule: str
    intensity: float
    flops: float
    chosen: bool


@dataclass(frozen=True)
class Roofline:
    """The picture's numbers: roofs, and the best schedule of each family."""

    across: str
    up: str
    note: str
    roofs: tuple[Roof, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Page:
    """All that ``explain`` says of one kernel on one device.

    ``automatic``: whether the model chose the schedule.  ``facts`` stand at the head, ``rest`` at the end.
    ``families``: the best schedule of each, ``others``: more of the chosen family, cheapest first.
    """

    version: int
    kind: Kind
    name: str
    about: str
    device: Device
    backend: str
    schedule: str
    automatic: bool
    unit: str
    rate_unit: str
    prediction: Prediction
    measurement: Measurement | None
    facts: tuple[Fact, ...]
    terms_of: str
    terms: tuple[Term, ...]
    legal: int
    families: tuple[Standing, ...]
    absent: tuple[Absent, ...]
    others: tuple[Standing, ...]
    refused: Refused
    changes: tuple[Change, ...]
    paper: Paper | None
    rest: tuple[Fact, ...]
    roofline: Roofline
