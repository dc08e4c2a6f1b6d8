"""Tables as kubectl has them: a line of headers, columns without lines."""

import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

import click
from rich.table import Table
from rich.text import Text

from cpg_cli.options import OutputOptions
from cpg_cli.rendering.console import console_of

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}
"""The colors of cells with these words."""
WIDTH = 100
"""Characters of a line, where there is no terminal."""
GAP, LEAST_WIDTH = 3, 20
INDENT = " " * GAP


class Column(NamedTuple):
    """A column of a table; numbers stand right, and text takes several lines if it ``wraps``."""

    header: str
    right: bool = False
    wraps: bool = False


def print_table(
    how: OutputOptions, columns: Sequence[Column], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> None:
    """Write a table, with a note of any length below each row. Columns that wrap fit into the terminal."""
    console = console_of(how)
    cells = zip(*rows, strict=True) if rows else [()] * len(columns)
    widths = [max(map(len, (column.header, *texts))) for column, texts in zip(columns, cells, strict=True)]
    fixed = sum(width + GAP for width, column in zip(widths, columns, strict=True) if not column.wraps)
    limit = console.width if console.is_terminal else WIDTH
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column in columns:
        width = max(limit - fixed, LEAST_WIDTH) if column.wraps else None
        table.add_column(
            column.header, justify="right" if column.right else "left", no_wrap=not column.wraps, width=width
        )
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    console.width = max(fixed + sum(widths), limit)
    with console.capture() as written:
        console.print(table)
    for line, note in zip_longest(written.get().splitlines(), ("", *notes), fillvalue=""):
        click.echo(
            "\n".join([line.rstrip(), *textwrap.wrap(note, limit, initial_indent=INDENT, subsequent_indent=INDENT)])
        )


def warn_of_unread(how: OutputOptions, unread: Iterable[str], without: str) -> None:
    """Name what the user may not list, and what follows from that."""
    names = sorted(unread)
    if names:
        warn(how, [f"you may not list {', '.join(names)}: {without}"])


def warn(how: OutputOptions, sentences: Iterable[str]) -> None:
    """Write on standard error what makes an answer incomplete."""
    for sentence in sentences:
        click.secho(f"warning: {sentence}", err=True, fg="yellow", color=how.color)
