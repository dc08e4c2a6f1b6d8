"""The names that a TARGET can have, for the completion of shells."""

from itertools import chain

import click
import msgspec
from click.shell_completion import CompletionItem

from cpg_api.decoding import decode
from cpg_api.meta import OwnerReference

MAX_NAMES = 500
SECONDS = 2.0
OPTIONS = ("kubeconfig", "context", "namespace", "user", "groups")


class _TargetMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    owner_references: tuple[OwnerReference, ...] = ()


class _TargetSpec(msgspec.Struct, frozen=True, rename="camel"):
    parent_composite_pod_group_name: str | None = None


class _TargetGroup(msgspec.Struct, frozen=True):
    metadata: _TargetMeta
    spec: _TargetSpec = _TargetSpec()


class _TargetGroups(msgspec.Struct, frozen=True):
    items: tuple[_TargetGroup, ...] = ()


class TargetName(click.ParamType[str]):
    """A group, a pod or an owner, as ``NAME`` or ``KIND/NAME``."""

    name = "target"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the roots of a namespace and their owners; none if the API server does not answer at once."""
        del param
        try:
            names = _names(ctx)
        except Exception:  # noqa: BLE001 - a completion shows no errors
            names = []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


TARGET = TargetName()


def _names(ctx: click.Context) -> list[str]:
    from cpg_cli.cluster.api_server import ApiServer  # noqa: PLC0415 - takes longer than many a completion
    from cpg_cli.options import ClusterOptions  # noqa: PLC0415 - see above
    from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS  # noqa: PLC0415 - see above

    given = {name: ctx.params[name] for name in OPTIONS if ctx.params.get(name)}
    server = ApiServer(ClusterOptions(**given, request_timeout=SECONDS))
    bodies = [
        server.get(one.path(server.namespace), {"limit": MAX_NAMES})
        for one in (CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS)
    ]
    groups = chain.from_iterable(decode(body, _TargetGroups).items for body in bodies)
    roots = [one.metadata for one in groups if not one.spec.parent_composite_pod_group_name]
    owners = {f"{one.kind.lower()}/{one.name}" for meta in roots for one in meta.owner_references if one.controller}
    return sorted({meta.name for meta in roots} | owners)
