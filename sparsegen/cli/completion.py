"""``sparsegen completion``, and what a shell shows on TAB: argcomplete has the protocol, here are the values.

A shell that has read the lines of ``sparsegen completion SHELL`` calls ``sparsegen`` with ``_ARGCOMPLETE`` set, and
``main`` answers with :func:`answer` instead of running a command.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from sparsegen.cli.common import OK, Args

SHELLS: Final = ("bash", "zsh", "fish")
#: Endings of the files that the argument ``file`` of a command names; of others .py.
_FILES: Final = {"run": ("py", "sgir"), "opt": ("sgir",)}


def completion(args: Args) -> int:
    """Print what a shell reads to complete this command."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["sparsegen"], shell=args.shell))
    return OK


def answer(parser: argparse.ArgumentParser) -> None:
    """Write the completions of the line in COMP_LINE to where argcomplete's protocol wants them, and exit."""
    from argcomplete import autocomplete
    from argcomplete.completers import ChoicesCompleter, FilesCompleter

    for command, sub in _commands(parser):
        for action in sub._actions:
            if action.dest == "file":
                values: Any = FilesCompleter(_FILES.get(command, ("py",)))
            elif action.type is not None:  # a number or a shape
                values = ChoicesCompleter({})
            else:
                values = _VALUES.get(action.dest)
            if values is not None:
                action.completer = values  # type: ignore[attr-defined]  # argcomplete's own
    autocomplete(parser)


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _devices(**_: Any) -> list[str]:
    from sparsegen.cost.devices import names

    return ["auto", *names()]


def _schedules(prefix: str, **_: Any) -> Iterable[str]:
    """Families of all operations; after a family, as in ``"tiled fu``, its words."""
    from sparsegen.registry import families, operations

    known = [families(op) for op in operations()]
    before, space, _last = prefix.rpartition(" ")
    if not space:
        return {"auto", *(name for of_op in known for name in of_op)}
    family = before.split()[0]
    return {f"{before} {word}=" for of_op in known if family in of_op for word in of_op[family].by_name}


def _parts(parsed_args: Args, **_: Any) -> Iterable[str]:
    """Parts of the suite that the line names; of all suites where it names none yet."""
    from sparsegen.bench.tables import PARTS

    known = PARTS if parsed_args.suite is None else {parsed_args.suite: PARTS.get(parsed_args.suite, ())}
    return {name for parts in known.values() for name in parts}


def _passes(prefix: str, **_: Any) -> list[str]:
    """Passes, each after those that stand before it and a comma."""
    from sparsegen.ir.passes import pass_names

    before, comma, _last = prefix.rpartition(",")
    return [f"{before}{comma}{name}" for name in pass_names()]


#: What the value of an option is called -> its values.
_VALUES: Final[dict[str, Callable[..., Iterable[str]]]] = {
    "device": _devices, "schedule": _schedules, "part": _parts, "passes": _passes,
}  # fmt: skip
