"""The root command. A module of a command is imported when it is needed, so that help and completion take no time."""

from importlib import import_module

import click
from click.shell_completion import CompletionItem

COMMANDS = {
    "tree": "Show trees with their status, health, pods and domains",
    "explain": "Say why a tree or pod waits, and what would help",
    "simulate": "Say what would happen if manifests were submitted",
    "what-if": "Say what would become of a tree if the cluster were different",
    "top": "Show what is free in blocks, racks and nodes, and what would fit",
    "queue": "List what waits, in the order in which it is tried",
    "wait": "Wait until a tree is placed, healthy or gone",
    "doctor": "Check the installation, your rights and the labels of nodes",
    "convert": "Turn manifests of other schedulers into ours",
    "dump": "Write a snapshot of the cluster",
    "replay": "Decide again from a snapshot, anywhere",
    "completion": "Write the completion of a shell",
}
"""Every command with its line of help. Its module has the same name, with ``_`` for ``-``, and defines ``command``."""
MODULES = {"queue": "pending_queue"}
"""The modules of commands that are named like one of the standard library."""


class LazyGroup(click.Group):
    """A group that imports a command when it is needed."""

    def list_commands(self, _: click.Context) -> list[str]:
        """Return all commands, in the order in which a user meets them."""
        return list(COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        """Return a command, or None if there is no such command."""
        if name not in COMMANDS:
            return None
        found = import_module(f"cpg_cli.commands.{MODULES.get(name, name.replace('-', '_'))}").command
        if not isinstance(found, click.Command):
            raise TypeError(f"{found!r} is no command")
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, without importing them, and options."""
        found = [CompletionItem(name, help=line) for name, line in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="kube-cpg", message="%(version)s")
def root() -> None:
    """See trees of gangs, understand why they wait, and try them before you submit them."""
