"""The page of the executables: their options, as their parsers have them."""

import argparse
from collections.abc import Iterator

from cpg_lab.__main__ import _parser as lab
from cpg_operator.__main__ import _parser as operator
from cpg_scheduler.__main__ import _parser as scheduler
from reference.sources import escaped

HEADER = """\
# Executables

<!-- Generated from the parsers by `python tools/generate_reference.py`. Do not edit. -->

Without `--kubeconfig` each takes `$KUBECONFIG` or `~/.kube/config`, as kubectl does, and inside a pod the account of
the pod. A mistake in what was given ends them with exit code 1 and one sentence on standard error, 2 where it is the
command line. `SIGTERM` and `SIGINT` end them in order: what is under way is finished, and the lease is given back.
"""


def page() -> str:
    """Return the page."""
    return HEADER + "".join(part for make in (scheduler, operator, lab) for part in _sections(make()))


def _sections(parser: argparse.ArgumentParser, level: int = 2) -> Iterator[str]:
    yield f"\n{'#' * level} {parser.prog}\n\n{escaped(parser.description or '')}\n"
    commands = next((one for one in parser._actions if isinstance(one, argparse._SubParsersAction)), None)  # noqa: SLF001 - argparse tells nobody else
    actions = [one for one in parser._actions if one is not commands and one.dest != "help"]  # noqa: SLF001 - likewise
    if actions:
        rows = "".join(f"| {_name(one)} | {_about(one)} |\n" for one in actions)
        yield f"\n| option | what it does |\n| --- | --- |\n{rows}"
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
