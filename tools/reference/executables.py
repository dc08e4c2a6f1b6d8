"""The page of the executables: the options of their parsers."""

import argparse
from collections.abc import Iterator

from cpg_lab.__main__ import _parser as lab
from cpg_operator.__main__ import _parser as operator
from cpg_scheduler.__main__ import _parser as scheduler
from reference.sources import escaped

HEADER = """\
# Executables

<!-- Generated from the parsers by `python tools/generate_reference.py`. Do not edit. -->

Without `--kubeconfig` each uses `$KUBECONFIG` or `~/.kube/config`, as kubectl does, and inside a pod its service
account. An invalid option exits with 2, any other invalid input with 1 and one sentence on standard error. On `SIGTERM`
and `SIGINT` a process finishes the requests in progress and releases its lease.
"""


def page() -> str:
    """Return the page."""
    return HEADER + "".join(part for make in (scheduler, operator, lab) for part in _sections(make()))


def _sections(parser: argparse.ArgumentParser, level: int = 2) -> Iterator[str]:
    yield f"\n{'#' * level} {parser.prog}\n\n{escaped(parser.description or '')}\n"
    commands = next((one for one in parser._actions if isinstance(one, argparse._SubParsersAction)), None)  # noqa: SLF001 - argparse has no public way
    actions = [one for one in parser._actions if one is not commands and one.dest != "help"]  # noqa: SLF001 - likewise
    if actions:
        rows = "".join(f"| {_name(one)} | {_about(one)} |\n" for one in actions)
        yield f"\n| option | meaning |\n| --- | --- |\n{rows}"
    for command in commands.choices.values() if commands else ():
        yield from _sections(command, level + 1)


def _name(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    takes = f" {action.metavar or action.dest.upper()}" if action.nargs != 0 and not action.choices else ""
    chosen = f" {'/'.join(map(str, action.choices))}" if action.choices else ""
    return ", ".join(f"`{option}{takes}{chosen}`" for option in action.option_strings)


def _about(action: argparse.Action) -> str:
    about = escaped((action.help or "") % {"default": action.default})
    if action.choices and not action.option_strings:
        about = f"one of {', '.join(f'`{choice}`' for choice in action.choices)}; {about}"
    return about
