"""Answers as JSON or YAML, with the same fields."""

import click
import msgspec
import yaml

from cpg_cli.options import OutputOptions


def print_document(how: OutputOptions, answer: object) -> None:
    """Write an answer in the chosen format, as it is stable for scripts."""
    plain = msgspec.to_builtins(answer)
    if how.output == "yaml":
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(msgspec.json.format(msgspec.json.encode(plain)))


def print_line(how: OutputOptions, answer: object, text: str) -> None:
    """Write one of several answers: as a line of JSON, a document of YAML, or the text."""
    if how.output == "json":
        click.echo(msgspec.json.encode(answer))
    elif how.output == "yaml":
        click.echo(yaml.safe_dump(msgspec.to_builtins(answer), sort_keys=False, explicit_start=True), nl=False)
    else:
        click.echo(text)
