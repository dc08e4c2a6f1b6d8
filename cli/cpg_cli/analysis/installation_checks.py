"""Checks of the installation: kinds, processes, versions, webhook, rights."""

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.names import VERSION
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_cli.analysis.findings import CheckFinding, failure, ok, some, warning
from cpg_cli.cluster.facts import OUR_PLURALS, ClusterFacts, Plain
from cpg_cli.cluster.release import ReplicaList
from cpg_client.flavours import CRD, NATIVE

INSTALL = "install the chart, see docs/how-to"
UPGRADE = "upgrade the chart; its CustomResourceDefinitions come with it"
OLDEST = (1, 30)
SHORT_NAMES = {"pg", "cpg"}
STALE_SECONDS = 15.0
"""Beyond its duration, after which a lease is not explained by different clocks."""


def kind_checks(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Check which flavours are served, and that our kinds are those of this version."""
    ours, native = facts.served.get(CRD, set()), facts.served.get(NATIVE, set())
    if ours >= set(OUR_PLURALS):
        yield ok("kinds", f"scheduling.cpg.dev/{VERSION} is served{', native groups too' if native else ''}")
    elif native and not ours:
        yield ok("kinds", "native groups are served, those of scheduling.cpg.dev are not")
    else:
        missing = some(set(OUR_PLURALS) - ours)
        yield failure("kinds", f"scheduling.cpg.dev/{VERSION} is not served: {missing}", INSTALL)
    for plural, definition in sorted(facts.custom_resources.items()):
        stored = definition.get("status", {}).get("storedVersions") or []
        if plural in OUR_PLURALS and stored != [VERSION]:
            text = f"{plural} are stored as {', '.join(stored)}, and {VERSION} is current"
            yield warning("stored versions", text, "rewrite the objects, then remove old versions from status")
    if facts.schemas:
        yield from _schema_checks(facts.schemas)


def _schema_checks(schemas: Plain) -> Iterator[CheckFinding]:
    drifted = False
    for kind in (PodGroup, CompositePodGroup, Workload):
        (plain,), components = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
        expected = set(_fields(plain, components, ()))
        served: Plain = next((one for name, one in schemas.items() if name.endswith(f".{kind.__name__}")), {})
        found = set(_fields(served, schemas, ()))
        missing = {path for path in expected - found if not path.startswith("metadata.") and _parent(path) in found}
        if missing:
            drifted = True
            yield failure("schema", f"{kind.__name__} lacks fields of this version: {some(missing)}", UPGRADE)
    if not drifted:
        yield ok("schema", "all fields of this version are there")


def _parent(path: str) -> str:
    return path.rpartition(".")[0] or path


def _fields(schema: Plain, components: Mapping[str, Plain], above: tuple[str, ...]) -> Iterator[str]:
    """Yield the path of each field of a schema, with the fields of items; a schema inside itself is entered once."""
    for part in (schema, *schema.get("anyOf", ()), *schema.get("allOf", ())):
        reference = part.get("$ref", "").rpartition("/")[2]
        if reference and reference not in above:
            yield from _fields(components[reference], components, (*above, reference))
        if isinstance(part.get("items"), dict):
            yield from _fields(part["items"], components, above)
        for name, field in part.get("properties", {}).items():
            yield name
            yield from (f"{name}.{inner}" for inner in _fields(field, components, above))


def server_checks(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Check the version of the API server."""
    found = re.match(r"v(\d+)\.(\d+)", facts.server_version)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        yield warning("Kubernetes", f"{facts.server_version} is not tested", "upgrade to 1.30 or later")
    else:
        yield ok("Kubernetes", facts.server_version)


def process_checks(facts: ClusterFacts, version: str) -> Iterator[CheckFinding]:
    """Check for each process that it runs, that one replica leads, and that it has the version of the command line."""
    for component, processes in facts.processes.items():
        if not processes:
            yield failure(component, "no pods found", INSTALL)
        for process in processes:
            yield from _replica_checks(component, process)
            yield from _leader_checks(component, process, facts.now)
            yield from _version_checks(component, process, version)
    if facts.not_ready is not None:
        if facts.not_ready:
            yield failure("watches", facts.not_ready, "see the logs of the scheduler, and its rights")
        else:
            yield ok("watches", "the scheduler that leads is up to date")


def _replica_checks(component: str, process: ReplicaList) -> Iterator[CheckFinding]:
    unready = [pod.key for pod in process.pods if not pod.is_ready]
    count = (
        f"{len(process.pods) - len(unready)} of {len(process.pods)} pods of {process.namespace}/{process.name} ready"
    )
    if not unready:
        yield ok(component, count)
    else:
        level = failure if len(unready) == len(process.pods) else warning
        yield level(component, f"{count}: {some(unready)}", "see `kubectl describe pod` and the logs")


def _leader_checks(component: str, process: ReplicaList, now: float) -> Iterator[CheckFinding]:
    check = f"{component} leader"
    lease, leader = process.lease, process.leader
    if leader is None:
        holder = (lease and lease.holder_identity) or "no replica"
        yield failure(check, f"{holder} holds the lease, and no pod of the release is it", "see the logs of the pods")
        return
    if lease is None:
        yield ok(check, f"{leader.key}, without leader election")
        return
    age = now - _seconds(lease.renew_time, now)
    if age > (lease.lease_duration_seconds or 0) + STALE_SECONDS:
        yield failure(check, f"{leader.key} has not renewed its lease for {age:.0f} s", "see its logs")
    else:
        yield ok(check, f"{leader.key}, lease renewed {max(age, 0):.0f} s ago")


def _seconds(time: str | None, default: float) -> float:
    try:
        return dt.datetime.fromisoformat(time or "").timestamp()
    except ValueError:
        return default


def _version_checks(component: str, process: ReplicaList, version: str) -> Iterator[CheckFinding]:
    label = "app.kubernetes.io/version"
    found = {pod.metadata.labels.get(label) or _tag(pod.spec.containers[0].image) for pod in process.pods}
    if found <= {version, ""}:
        yield ok(f"{component} version", some(found - {""}) or "unknown: the image has a digest and no tag")
    else:
        text = f"{some(found)}, and kubectl cpg is {version}"
        yield warning(
            f"{component} version", text, "use the same version, so that explanations are those of the scheduler"
        )


def _tag(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def collision_checks(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Check for kinds of other projects with the names of ours."""
    same = sorted({one.group for one in facts.other_kinds if one.name in OUR_PLURALS and "/" not in one.name})
    if same:
        names = ", ".join(f"podgroups.{group}" for group in same)
        todo = "write podgroups.scheduling.cpg.dev, see `kubectl api-resources`"
        yield warning("names", f"other kinds have the names of ours: {names}", todo)
    for one in facts.other_kinds:
        for short in sorted(SHORT_NAMES & set(one.short_names)):
            yield warning("names", f"`{short}` is also {one.name}.{one.group}", "write the plural with its API group")
    if not same:
        yield ok("names", "no other kind has the names of ours")


def webhook_checks(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Check that the optional webhook has certificates and fails open."""
    for one in facts.webhooks:
        name = one["metadata"]["name"]
        hooks: list[dict[str, Any]] = one.get("webhooks") or []
        if any(not hook["clientConfig"].get("caBundle") for hook in hooks):
            yield failure("webhook", f"{name} has no CA bundle yet", "see the logs of the operator that leads")
        elif any(hook.get("failurePolicy") != "Ignore" for hook in hooks):
            yield warning("webhook", f"{name} does not fail open", "set failurePolicy to Ignore")
        else:
            yield ok("webhook", f"{name} has a CA bundle and fails open")


def right_checks(facts: ClusterFacts) -> Iterator[CheckFinding]:
    """Check what the user may do, and say what is missing without it."""
    for right in facts.missing_rights:
        yield warning("your rights", f"you may not {right.name}: {right.without}", "ask an administrator for it")
    if not facts.missing_rights and "rights" not in facts.unread:
        yield ok("your rights", "all that kubectl cpg uses")
