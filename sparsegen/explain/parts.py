"""Parts of a page that are made in the same way for all kinds of kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Protocol

from sparsegen.cost.devices import DeviceProfile, load_profile, names
from sparsegen.explain.page import Device, Fact, Measurement, Refusal, Refused, Term
from sparsegen.explain.units import seconds

if TYPE_CHECKING:
    from sparsegen.target import Target

#: Kinds of reason for a refusal that are shown.
_REASONS = 6


class Costed(Protocol):
    """What the costs of all kinds of kernels have in common."""

    @property
    def time(self) -> float: ...
    @property
    def terms(self) -> dict[str, float]: ...
    @property
    def binds(self) -> str: ...
    def reasons(self) -> dict[str, str]: ...


def device(profile: DeviceProfile) -> Device:
    """The device of a page."""
    return Device(profile.name, profile.arch, profile.explain_only)


def place(target: Target) -> list[Fact]:
    """The head's lines on device and back end."""
    profile = target.profile
    only = "; costs and explanations only: no code is generated for it" * profile.explain_only
    facts = [Fact("device", f"{profile.name} ({profile.arch}){only}")]
    if target.note:
        facts.append(Fact("note", target.note))
    return [*facts, Fact("backend", target.backend)]


def terms(cost: Costed) -> tuple[Term, ...]:
    """The terms, largest first; ``share`` is of the predicted time of the launch."""
    reasons = cost.reasons()
    rows = sorted(cost.terms.items(), key=lambda item: -item[1])
    return tuple(Term(name, t, t / cost.time, name == cost.binds, reasons[name]) for name, t in rows)


def measurement(measured: float | None, predicted: float) -> Measurement | None:
    """A measured call beside the predicted one."""
    return None if measured is None else Measurement(measured, predicted, predicted / measured - 1)


def measured_fact(found: Measurement | None) -> list[Fact]:
    """The head's line on what was measured."""
    if found is None:
        return []
    times = f"{seconds(found.seconds)}, predicted {seconds(found.predicted)} ({100 * found.off:+.0f} %)"
    return [Fact("measured", f"{times} a call")]


def refused(found: Iterable[tuple[str, str, str]], most: int = _REASONS) -> Refused:
    """(family, schedule, reason) of refused schedules, by kind: reasons that differ in their numbers only are one."""
    groups: Counter[tuple[str, str]] = Counter()
    example: dict[tuple[str, str], tuple[str, str]] = {}
    for family, schedule, reason in found:
        key = (family, re.sub(r"\d+", "#", reason))
        groups[key] += 1
        example.setdefault(key, (schedule, reason))
    rows = tuple(Refusal(count, key[0], *example[key]) for key, count in groups.most_common(most))
    return Refused(sum(groups.values()), len(groups), rows)


def other_profiles(own: DeviceProfile) -> Mapping[str, DeviceProfile]:
    """The shipped profiles of other GPUs."""
    return {name: profile for name, profile in _shipped().items() if profile.name != own.name}


@cache
def _shipped() -> Mapping[str, DeviceProfile]:
    return {name: load_profile(name) for name in names()}


def arrays(backend: str) -> Fact:
    """The line on what is copied."""
    if backend == "cuda":
        return Fact("arrays", "device arrays are used where they are; host arrays are copied in and out once a call")
    return Fact("arrays", "host arrays, used where they are")
