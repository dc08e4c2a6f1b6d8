"""Changes of manifests by options: ``--set NAME.FIELD=VALUE`` and ``--scale NAME=NUMBER``."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

from cpg_api.scheduling.names import GROUP, INSTANTIATE
from cpg_cli.cluster.documents import Document, Plain
from cpg_cli.cluster.manifests import FLAVOURS
from cpg_cli.failures import CommandError, usage_error

Settable = tuple[str, Sequence[str], Callable[[str, Any], None]]
"""A name that can be changed, its fields, and what changes one of them."""
LISTS = ("podGroupTemplates", "compositePodGroupTemplates")


def with_overrides(documents: Sequence[Document], settings: Sequence[str], scales: Sequence[str]) -> list[Document]:
    """Return documents with changes; raise if a change finds nothing to change."""
    changed = [Document(one.place, deepcopy(one.plain)) for one in documents]
    for text in settings:
        path, value = _parsed(text, "--set", "NAME.FIELD=VALUE")
        name, dot, field = path.rpartition(".")
        if not dot:
            raise usage_error(f"--set {text}: is not NAME.FIELD=VALUE", "such as --set workers.minCount=3")
        _change(changed, name, field, _value(value), f"--set {text}")
    for text in scales:
        name, value = _parsed(text, "--scale", "NAME=NUMBER")
        if not value.isdecimal():
            raise usage_error(f"--scale {text}: {value!r} is no number", "such as --scale replica=3")
        _change(changed, name, "replicas", int(value), f"--scale {text}")
    return changed


def _parsed(text: str, option: str, form: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise usage_error(f"{option} {text}: is not {form}")
    return name, value


def _value(text: str) -> Any:  # noqa: ANN401 - a value of YAML
    return int(text) if text.lstrip("-").isdecimal() else text


def _change(documents: Sequence[Document], name: str, field: str, value: Any, option: str) -> None:  # noqa: ANN401
    """Change all that a name means; raise with what could be changed if that is nothing."""
    known = list(_settable(documents))
    found = [change for one, fields, change in known if one == name and field in fields]
    if not found:
        raise _unknown(known, name, field, option)
    for change in found:
        change(field, value)


def _unknown(known: Sequence[Settable], name: str, field: str, option: str) -> CommandError:
    fields = sorted({one for called, several, _ in known if called == name for one in several})
    if fields:
        return usage_error(f"{option}: {name} has no {field} that can be set", f"it has: {', '.join(fields)}")
    names = sorted({called for called, _, _ in known})
    return usage_error(f"{option}: the files have no {name}", f"they have: {', '.join(names) or 'nothing to change'}")


def _settable(documents: Sequence[Document]) -> Iterator[Settable]:
    """Yield all that can be changed."""
    for document in documents:
        plain = document.plain
        name, spec = plain["metadata"]["name"], plain.get("spec") or {}
        if document.group in FLAVOURS and document.kind == "Workload":
            annotations = plain["metadata"].get("annotations") or {}
            yield from _templates(spec, ["replicas"] if annotations.get(INSTANTIATE) == "true" else [])
        elif document.group in FLAVOURS and document.kind in {"PodGroup", "CompositePodGroup"}:
            fields = _fields(spec, composite=document.kind == "CompositePodGroup")
            template = (spec.get("workloadRef") or {}).get("templateName")
            for one in {name, template} - {None}:
                yield one, fields, _setter(spec)
        else:
            yield from _owner(document, name, spec)


def _templates(spec: Plain, sizes: Sequence[str]) -> Iterator[Settable]:
    """Yield the templates of a Workload; they have sizes where the operator creates the groups."""
    for list_ in LISTS:
        for template in spec.get(list_) or ():
            composite = list_ == LISTS[1]
            yield template.get("name", ""), [*_fields(template, composite=composite), *sizes], _setter(template)
            yield from _templates(template, sizes)


def _fields(spec: Plain, *, composite: bool) -> list[str]:
    is_gang = "gang" in (spec.get("schedulingPolicy") or {})
    return [*(["minGroupCount" if composite else "minCount"] if is_gang else []), "topology", "priorityClassName"]


def _setter(spec: Plain) -> Callable[[str, Any], None]:
    def change(field: str, value: Any) -> None:  # noqa: ANN401 - a value of YAML
        if field in {"minCount", "minGroupCount"}:
            spec["schedulingPolicy"]["gang"][field] = value
        elif field == "topology":
            constraints = spec.setdefault("schedulingConstraints", {})
            constraints["topology"] = [{"key": value}]
        else:
            spec[field] = value

    return change


def _owner(document: Document, name: str, spec: Plain) -> Iterator[Settable]:
    """Yield what can be changed of an owner: its annotations about groups, its sizes, and those of its roles."""
    annotations = document.plain["metadata"].setdefault("annotations", {}) or {}
    document.plain["metadata"]["annotations"] = annotations

    def annotate(field: str, value: Any) -> None:  # noqa: ANN401 - a value of YAML
        annotations[f"{GROUP}/{OWNER_ANNOTATIONS[field]}"] = str(value)

    def scale(fields: Sequence[str], target: Plain) -> Callable[[str, Any], None]:
        return lambda _, value: target.update(dict.fromkeys(fields, value))

    if document.kind in SIZES or document.kind in ROLES:
        yield name, list(OWNER_ANNOTATIONS), annotate
    if document.kind in SIZES:
        yield name, ["replicas"], scale(SIZES[document.kind], spec)
    list_, key = ROLES.get(document.kind, ("", ""))
    for role in (spec.get(list_) or ()) if list_ else ():
        target = role.setdefault("spec", {}) if document.kind == "DisaggregatedSet" else role
        yield str(role.get(key, "")), ["replicas"], scale(["replicas"], target)


OWNER_ANNOTATIONS = {
    "minCount": "min-count",
    "minGroupCount": "min-groups",
    "topology": "required-topology",
    "replicaTopology": "replica-required-topology",
}
"""The fields of owners that annotations have."""
SIZES = {
    "Job": ("parallelism", "completions"),
    "Deployment": ("replicas",),
    "ReplicaSet": ("replicas",),
    "StatefulSet": ("replicas",),
    "LeaderWorkerSet": ("replicas",),
}
"""The fields of an owner that have its size."""
ROLES = {
    "JobSet": ("replicatedJobs", "name"),
    "RayCluster": ("workerGroupSpecs", "groupName"),
    "DisaggregatedSet": ("roles", "name"),
}
"""The list of an owner's roles, and the field with the name of a role."""
