"""List the objects of a cluster, as far as the rights of the user go."""

from collections.abc import Callable, Iterable
from typing import Any

from cpg_api.core.pod import Pod
from cpg_api.decoding import decode
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integrations
from cpg_api.parsing import Rejected, parse_object
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_cli.cluster.api_server import ApiServer, ApiServerError
from cpg_cli.cluster.kinds import RESOURCES
from cpg_cli.cluster.objects import ClusterObjects
from cpg_client.flavours import KINDS
from cpg_client.resources import Resource, group_path
from cpg_scheduler.cache.projections import KEPT, SLIM

Report = Callable[[str, int, int], None]
"""Called after each page of a list, with the plural, the objects so far, and how many there are."""
NOT_FOUND, FORBIDDEN = 404, 403


def served_kinds(server: ApiServer) -> dict[str, dict[type, Resource]]:
    """Return the kinds of groups that the API server has, by flavour."""
    return {
        flavour: found
        for flavour, kinds in KINDS.items()
        if (found := {kind: one for kind, one in kinds.items() if _is_served(server, one)})
    }


def _is_served(server: ApiServer, resource: Resource) -> bool:
    try:
        body = server.get(group_path(resource.group, resource.version))
    except ApiServerError as error:
        if error.status == NOT_FOUND:
            return False
        raise
    served = decode(body, dict[str, Any]).get("resources") or ()
    return any(one.get("name") == resource.plural for one in served)


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
    for kind in kinds:
        project = projection_of(kind, rules)
        found.by_kind[kind] = _listed(server, RESOURCES[kind], kind, namespace, found, report, project=project)
    for flavour, served in served_kinds(server).items():
        found.groups[flavour] = {
            kind: _listed(server, resource, kind, namespace, found, report, project=projection_of(kind, rules))
            for kind, resource in served.items()
        }
    return found


def projection_of(kind: type, rules: Integrations) -> Callable[[Any], Any]:
    """Return what keeps the fields of an object that scheduling reads; for a pod, also the group from its owner."""
    project = KEPT.get(kind, SLIM).project
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
    try:
        for page in server.pages(resource, namespace if resource.namespaced else None):
            for raw in page.items:
                parsed: Any = parse_object(raw, kind)
                if isinstance(parsed, Rejected):
                    found.refused.append(f"{kind.__name__} {parsed.name}: {parsed.problems[0]}")
                else:
                    objects.append(project(parsed))
            report(resource.plural, len(objects), len(objects) + page.metadata.remaining_item_count)
    except ApiServerError as error:
        if error.status not in {FORBIDDEN, NOT_FOUND}:
            raise
        found.unread[resource.plural] = str(error)
    return objects
