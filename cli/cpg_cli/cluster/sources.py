"""The cluster that a simulation starts from: live, a dump, or manifests of nodes."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integrations
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_cli.cluster.admission import admit_pod, priority_classes
from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.documents import Document, parse_documents
from cpg_cli.cluster.kinds import RESOURCES
from cpg_cli.cluster.listing import Report, list_objects
from cpg_cli.cluster.manifests import read_manifests
from cpg_cli.cluster.objects import ClusterObjects
from cpg_cli.failures import CommandError, ExitCode, usage_error
from cpg_client.flavours import CRD
from cpg_scheduler.debug.dump import GZIP, Dump, GroupsOfFlavour, UnreadableDumpError, read_dump

LIVE = "live"
DUMP = re.compile(rb'\s*\{\s*"format"\s*:')
"""The beginning of a dump."""


class ReadCluster(NamedTuple):
    """A cluster, and what is not known of it."""

    dump: Dump
    missing: tuple[str, ...] = ()


def read_cluster(
    source: str, server: ApiServer, *, now: float, report: Report, scheduler_name: str = ""
) -> ReadCluster:
    """Return a cluster: ``live``, a dump, or a file with its nodes and perhaps more."""
    name = scheduler_name or SCHEDULER_NAME
    if source == LIVE:
        return _with_our_groups(live_cluster(server, scheduler_name=name, now=now, report=report))
    try:
        data = Path(source).read_bytes()
    except OSError as error:
        hint = "choose --cluster live, a dump, or a file with nodes"
        raise usage_error(f"{source}: {error.strerror}", hint) from error
    if data.startswith(GZIP) or DUMP.match(data):
        found = parse_dump(source, data)
        return ReadCluster(replace(found, scheduler_name=scheduler_name or found.scheduler_name))
    return ReadCluster(cluster_from_manifests(source, data, scheduler_name=name, now=now))


def live_cluster(server: ApiServer, *, scheduler_name: str, now: float, report: Report) -> ReadCluster:
    """Return the cluster as the user sees it; raise if that is not enough to decide on."""
    integrations = Integrations([scheduler_name], DEFAULT_INTEGRATIONS)
    found = list_objects(server, integrations=integrations, report=report)
    for kind in (Node, Pod):
        if (plural := RESOURCES[kind].plural) in found.unread:
            hint = "ask an administrator for a dump (`kubectl cpg dump`), and choose --cluster FILE"
            raise CommandError(f"you may not list all {plural}", code=ExitCode.FORBIDDEN, hint=hint)
    missing = [f"you may not list {plural}: the answer is without them" for plural in found.unread]
    return ReadCluster(found.to_dump(scheduler_name, taken=now), (*missing, *found.refused))


def _with_our_groups(found: ReadCluster) -> ReadCluster:
    """Return a cluster that serves our groups, as if kube-cpg were installed."""
    if CRD in found.dump.groups:
        return found
    note = "the cluster does not serve the groups of kube-cpg: the answer is as if it were installed"
    groups = {**found.dump.groups, CRD: GroupsOfFlavour()}
    return ReadCluster(replace(found.dump, groups=groups), (*found.missing, note))


def read_dump_file(file: str) -> Dump:
    """Read a dump; raise an error for users if it is none."""
    try:
        return parse_dump(file, Path(file).read_bytes())
    except OSError as error:
        raise usage_error(f"{file}: {error.strerror}") from error


def parse_dump(file: str, data: bytes) -> Dump:
    """Return the dump that a file has."""
    try:
        return read_dump(data)
    except UnreadableDumpError as error:
        raise usage_error(f"{file}: {error}", "make one with `kubectl cpg dump`") from error


def cluster_from_manifests(file: str, data: bytes, *, scheduler_name: str, now: float) -> Dump:
    """Return the cluster that manifests describe."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise usage_error(f"{file}: {error}", "choose a dump, or a file with nodes") from error
    return existing_cluster(parse_documents(file, text), scheduler_name=scheduler_name, now=now)


def existing_cluster(
    documents: Iterable[Document],
    *,
    namespace: str = "default",
    scheduler_name: str = SCHEDULER_NAME,
    now: float = 0.0,
) -> Dump:
    """Return the cluster that has the objects of some documents."""
    found = read_manifests(documents, namespace=namespace, created="", is_existing=True).objects
    found.by_kind[Pod] = _existing_pods(found, scheduler_name)
    return found.to_dump(scheduler_name, taken=now)


def _existing_pods(found: ClusterObjects, scheduler_name: str) -> list[Pod]:
    """Return pods with the defaults of the API server, each with its group; one with a node runs."""
    rules = Integrations([scheduler_name], DEFAULT_INTEGRATIONS)
    classes = priority_classes(found.by_kind[PriorityClass])
    pods = []
    for pod in found.by_kind[Pod]:
        admitted = admit_pod(pod, classes)
        phase = pod.status.phase or ("Running" if pod.spec.node_name else "Pending")
        status = replace(pod.status, phase=phase)
        if pod.spec.priority is not None:
            admitted = replace(admitted, spec=replace(admitted.spec, priority=pod.spec.priority))
        pods.append(rules.with_group(replace(admitted, status=status)))
    return pods
