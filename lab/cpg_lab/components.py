"""The components of a cluster as a table: command, health checks, ports and user.

Components start in the order of the table. They stop in the reverse order, so that each keeps what it depends on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cpg_lab import commands, workloads
from cpg_lab.commands import CommandContext
from cpg_lab.specs import ClusterSpec
from cpg_lab.workloads import WorkloadController


@dataclass(frozen=True, kw_only=True)
class ComponentKind:
    """One kind of component."""

    name: str
    command: Callable[[CommandContext], list[str]]
    health: tuple[str, ...]
    """Paths that must all answer with success before the component is ready."""
    ports: tuple[str, ...]
    scheme: str = "https"
    user: str = ""
    groups: tuple[str, ...] = ()
    config: Callable[[CommandContext], dict[str, object]] | None = None
    """The contents of its configuration file."""
    webhook: str = ""
    """The path of a webhook that must answer as well, on the last of the ports."""


def _workload(controller: WorkloadController) -> ComponentKind:
    return ComponentKind(
        name=controller.name,
        command=partial(workloads.command, controller),
        config=partial(workloads.configuration, controller) if controller.api_version else None,
        health=("/readyz",),
        webhook=controller.probe,
        ports=tuple(filter(None, (controller.name, controller.webhook_port))),
        scheme="http",
        user=f"cpg-lab:{controller.name}",
        groups=("system:masters",),
    )


ALL = (
    ComponentKind(name="etcd", command=commands.etcd, health=("/health",), ports=("etcd", "etcd-peer"), scheme="http"),
    ComponentKind(
        name="apiserver",
        command=commands.apiserver,
        health=("/readyz", "/api/v1/namespaces/default"),
        ports=("apiserver",),
        config=commands.audit_policy,
    ),
    ComponentKind(
        name="controller-manager",
        command=commands.controller_manager,
        health=("/healthz",),
        ports=("controller-manager",),
        # Its own role does not cover its controllers, which would each need an account that is made at the start.
        user="system:kube-controller-manager",
        groups=("system:masters",),
    ),
    ComponentKind(
        name="scheduler",
        command=commands.scheduler,
        health=("/readyz",),
        ports=("scheduler",),
        config=commands.scheduler_config,
        # Not an administrator: the same flow control applies to it as to ours.
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
    *map(_workload, workloads.ALL),
)

BY_NAME = {kind.name: kind for kind in ALL}


def of_spec(spec: ClusterSpec) -> tuple[ComponentKind, ...]:
    """Return the components of a cluster, in order of starting."""
    return tuple(kind for kind in ALL if kind.name in spec.started())
