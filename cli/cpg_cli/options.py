"""The options of kubectl that every command takes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import click

P = ParamSpec("P")
R = TypeVar("R")
Output = Literal["json", "yaml", "wide"] | None


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Which cluster, as which user, in which namespace."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    all_namespaces: bool = False
    user: str | None = None
    groups: tuple[str, ...] = ()
    request_timeout: float = 60.0


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """How to write the answer."""

    output: Output = None
    color: bool | None = None
    """Whether to use colors; None if standard output is a terminal."""


_CLUSTER = [
    click.option("-n", "--namespace", metavar="NAME", help="The namespace; that of the context by default."),
    click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces."),
    click.option("--context", metavar="NAME", help="The context of the kubeconfig."),
    click.option("--kubeconfig", metavar="FILE", type=click.Path(dir_okay=False), help="The kubeconfig."),
    click.option("--as", "user", metavar="USER", help="Act as this user."),
    click.option("--as-group", "groups", metavar="GROUP", multiple=True, help="Act as a member of this group."),
    click.option(
        "--request-timeout",
        metavar="SECONDS",
        type=click.FloatRange(min=0.1),
        default=60.0,
        show_default=True,
        help="How long to wait for one answer of the API server.",
    ),
]
_OUTPUT = [
    click.option("-o", "--output", type=click.Choice(["json", "yaml", "wide"]), help="The format."),
    click.option("--color/--no-color", default=None, help="Colors; on a terminal only by default."),
]


def cluster_options(command: Callable[Concatenate[ClusterOptions, P], R]) -> Callable[P, R]:
    """Give a command the options of a cluster; it takes them as its first argument."""

    @wraps(command)
    def with_options(**values: Any) -> R:
        names = ClusterOptions.__dataclass_fields__
        chosen = ClusterOptions(**{name: values.pop(name) for name in names})
        return command(chosen, **values)  # type: ignore[call-arg] # click gives the rest by name

    return _decorated(with_options, _CLUSTER)


def output_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options of its output; it takes them as ``how``."""

    @wraps(command)
    def with_options(*args: Any, output: Output, color: bool | None, **values: Any) -> R:
        return command(*args, how=OutputOptions(output=output, color=color), **values)

    return _decorated(with_options, _OUTPUT)


def _decorated(command: Callable[..., R], options: list[Callable[..., Any]]) -> Callable[..., R]:
    for option in reversed(options):
        command = option(command)
    return command
