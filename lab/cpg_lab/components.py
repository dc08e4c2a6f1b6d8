"""The components of a cluster as a table: what to run, how to tell that it is ready, what it needs before it.

The order of the table is the order of starting; stopping goes the other way, so that nobody loses what it
leans on while it still works.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cpg_lab import commands
from cpg_lab.commands import CommandContext
from cpg_lab.specs import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class ComponentKind:
    """One kind of component."""

    name: str
    command: Callable[[CommandContext], list[str]]
    health: tuple[str, ...]
    """Paths that must all answer well before the component counts as ready."""
    ports: tuple[str, ...]
    scheme: str = "https"
    user: str = ""
    groups: tuple[str, ...] = ()


ALL = (
    ComponentKind(name="etcd", command=commands.etcd, health=("/health",), ports=("etcd", "etcd-peer"), scheme="http"),
    ComponentKind(
        name="apiserver",
        command=commands.apiserver,
        health=("/readyz", "/api/v1/namespaces/default"),
        ports=("apiserver",),
    ),
    ComponentKind(
        name="controller-manager",
        command=commands.controller_manager,
        health=("/healthz",),
        ports=("controller-manager",),
        # Its own role covers what it does itself; its controllers would need an account each, made at start.
        user="system:kube-controller-manager",
        groups=("system:masters",),
    ),
    ComponentKind(
        name="scheduler",
        command=commands.scheduler,
        health=("/readyz",),
        ports=("scheduler",),
        # No administrator: it shall pass the same flow control as ours does.
        user="system:kube-scheduler",
    ),
    ComponentKind(
        name="kwok",
        command=commands.kwok,
        health=("/readyz",),
        ports=("kwok",),
        scheme="http",
        user="cpg-lab:kwok",
        groups=("system:masters",),
    ),
)

BY_NAME = {kind.name: kind for kind in ALL}


def wanted(spec: ClusterSpec) -> tuple[ComponentKind, ...]:
    """Give the components of a cluster, in order of starting."""
    names = {"etcd", "apiserver", *spec.components}
    return tuple(kind for kind in ALL if kind.name in names)
