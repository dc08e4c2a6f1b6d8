"""The terminal: colors and progress bars where there is one, plain text elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from cpg_cli.options import OutputOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import TaskID

PLAIN_WIDTH = 160
"""Characters per line where there is no terminal."""


def console_of(how: OutputOptions) -> Console:
    """Return the console of standard output."""
    found = Console(force_terminal=how.color, no_color=how.color is False, highlight=False, soft_wrap=True)
    if not found.is_terminal:
        found.width = PLAIN_WIDTH
    return found


@contextmanager
def progress_of(how: OutputOptions) -> "Iterator[Callable[[str, int, int], None]]":
    """Show on standard error how far the lists are, and yield what takes a name, what is done, and the total."""
    console = Console(stderr=True, no_color=how.color is False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def report(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name)
            progress.update(tasks[name], completed=done, total=total)

        yield report
