"""List the objects of a cluster, as far as the rights of the user go.

Several resources are listed at a time: while the API server encodes one page, another is decoded. Of each object only
what scheduling reads is kept, so a large cluster fits into memory; of groups also their status.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cpg_api.core.pod import Pod
from cpg_api.decoding import decode
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integrations
from cpg_api.parsing import Rejected, parse_object
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_api.scheduling.podgroup import PodGroup
from cpg_cli.cluster.api_server import ApiServer, ApiServerError
from cpg_cli.cluster.kinds import OLDER, RESOURCES
from cpg_cli.cluster.objects import ClusterObjects
from cpg_client.flavours import KINDS
from cpg_client.resources import Resource, group_path
from cpg_scheduler.cache.nominations import read_pod
from cpg_scheduler.cache.projections import KEPT, SLIM, slim_owned

Report = Callable[[str, int, int], None]
"""Called after each page of a list, with the plural, the objects so far, and how many there are."""
NOT_FOUND, FORBIDDEN = 404, 403
LISTS_AT_A_TIME = 4
WITH_STATUS: Mapping[type, Callable[[Any], Any]] = {PodGroup: slim_owned, CompositePodGroup: slim_owned}
"""The projections that keep the status of groups, which the scheduler does not need."""


def served_kinds(server: ApiServer) -> dict[str, dict[type, Resource]]:
    """Return the kinds of groups that the API server has, by flavour."""
    served = {
        group_version: _served_plurals(server, *group_version)
        for group_version in {(one.group, one.version) for kinds in KINDS.values() for one in kinds.values()}
    }
    return {
        flavour: found
        for flavour, kinds in KINDS.items()
        if (found := {kind: one for kind, one in kinds.items() if one.plural in served[one.group, one.version]})
    }


def _served_plurals(server: ApiServer, group: str, version: str) -> set[str]:
    try:
        body = server.get(group_path(group, version))
    except ApiServerError as error:
        if error.status == NOT_FOUND:
            return set()
        raise
    return {str(one.get("name")) for one in decode(body, dict[str, Any]).get("resources") or ()}


def unreadable(server: ApiServer, resources: Iterable[Resource], namespace: str | None = None) -> dict[str, str]:
    """Return those resources of which the user may not list all objects, each with the answer of the API server."""
    found = {}
    for resource in resources:
        try:
            server.get(resource.path(namespace if resource.namespaced else None), {"limit": 1})
        except ApiServerError as error:
            if error.status != FORBIDDEN:
                raise
            found[resource.plural] = str(error)
    return found


def list_objects(
    server: ApiServer,
    *,
    namespace: str | None = None,
    integrations: Integrations | None = None,
    kinds: Iterable[type] = tuple(RESOURCES),
    report: Report = lambda *_: None,
) -> ClusterObjects:
    """List all objects, or those of a namespace and of the cluster; what the user may not read is missing."""
    found = ClusterObjects()
    rules = integrations or Integrations([SCHEDULER_NAME], DEFAULT_INTEGRATIONS)
    with ThreadPoolExecutor(LISTS_AT_A_TIME) as pool:

        def start(resource: Resource, kind: type) -> "Callable[[], list[Any]]":
            project = projection_of(kind, rules)
            return pool.submit(_listed, server, resource, kind, namespace, found, report, project=project).result

        # Pods take longest, so they come first.
        ordered = sorted(kinds, key=lambda kind: kind is not Pod)
        listed = {kind: start(RESOURCES[kind], kind) for kind in ordered}
        groups = {
            flavour: {kind: start(resource, kind) for kind, resource in served.items()}
            for flavour, served in served_kinds(server).items()
        }
        for kind, objects in listed.items():
            found.by_kind[kind] = objects()
        found.groups = {
            flavour: {kind: objects() for kind, objects in by_kind.items()} for flavour, by_kind in groups.items()
        }
    return found


def projection_of(kind: type, rules: Integrations) -> Callable[[Any], Any]:
    """Return what keeps the fields of an object that scheduling reads; for a pod, also the group from its owner."""
    project = WITH_STATUS.get(kind) or KEPT.get(kind, SLIM).project
    return (lambda pod: project(rules.with_group(pod))) if kind is Pod else project


def _listed(
    server: ApiServer,
    resource: Resource,
    kind: type,
    namespace: str | None,
    found: ClusterObjects,
    report: Report,
    *,
    project: Callable[[Any], Any],
) -> list[Any]:
    objects: list[Any] = []
    parse: Callable[[Any, Any], Any] = read_pod if kind is Pod else parse_object
    try:
        for page in server.pages(resource, namespace if resource.namespaced else None):
            for raw in page.items:
                parsed = parse(raw, kind)
                if isinstance(parsed, Rejected):
                    found.refused.append(f"{kind.__name__} {parsed.name}: {parsed.problems[0]}")
                else:
                    objects.append(project(parsed))
            report(resource.plural, len(objects), len(objects) + page.metadata.remaining_item_count)
    except ApiServerError as error:
        if error.status == NOT_FOUND and kind in OLDER:
            older = [one for one in OLDER[kind] if one != resource]
            return _listed(server, older[0], kind, namespace, found, report, project=project) if older else []
        if error.status not in {FORBIDDEN, NOT_FOUND}:
            raise
        found.unread[resource.plural] = str(error)
    return objects
