"""The three kinds as CustomResourceDefinitions: names, columns, and the schema of their struct."""

from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.names import (
    COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED,
    DERIVED_FROM,
    GROUP,
    POD_GROUP_INITIALLY_SCHEDULED,
    VERSION,
)
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from crds.openapi import schema_of

CATEGORY = "kube-cpg"
"""`kubectl get kube-cpg` lists the objects of all three kinds."""

Columns = list[dict[str, Any]]


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    return column | {"priority": 1} if wide else column


_AGE = _column("Age", ".metadata.creationTimestamp", "date")

_OWNER = _column("Owner", ".metadata.annotations." + DERIVED_FROM.replace(".", "\\."))
"""Such as `jobset/train`; empty for groups that are not made for an owner."""


def _group_columns(*, condition: str, minimum: str, groups: bool) -> Columns:
    """Return the columns of a group: its status first; parent and Workload only with `-o wide`."""
    return [
        _column("Status", f'.status.conditions[?(@.type=="{condition}")].reason'),
        _column("Minimum", f".spec.schedulingPolicy.gang.{minimum}", "integer"),
        *([_column("Groups", ".status.groups.ready", "integer")] if groups else []),
        _column("Pods", ".status.pods.desired", "integer"),
        _column("Scheduled", ".status.pods.scheduled", "integer"),
        _column("Running", ".status.pods.running", "integer"),
        _column("Health", '.status.conditions[?(@.type=="Healthy")].reason'),
        _column("Domain", ".status.domain.value"),
        _OWNER,
        _AGE,
        _column("Priority", ".spec.priority", "integer", wide=True),
        _column("Parent", ".spec.parentCompositePodGroupName", wide=True),
        _column("Workload", ".spec.workloadRef.workloadName", wide=True),
        _column("Blocked", ".status.attempt.blockedAt.name", wide=True),
    ]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind: its struct, its names and its columns."""

    struct: type[Struct]
    plural: str
    short_names: tuple[str, ...]
    columns: Columns

    @property
    def name(self) -> str:
        """The name of the CustomResourceDefinition and of its file."""
        return f"{self.plural}.{GROUP}"

    def manifest(self) -> dict[str, Any]:
        """Return the whole CustomResourceDefinition."""
        kind = self.struct.__name__
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {
                    "kind": kind,
                    "listKind": f"{kind}List",
                    "plural": self.plural,
                    "singular": kind.lower(),
                    "shortNames": list(self.short_names),
                    "categories": [CATEGORY],
                },
                "versions": [self._version()],
            },
        }

    def _version(self) -> dict[str, Any]:
        return {
            "name": VERSION,
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "additionalPrinterColumns": self.columns,
            "schema": {"openAPIV3Schema": schema_of(self.struct)},
        }


KINDS = (
    Kind(
        struct=Workload,
        plural="workloads",
        short_names=("cwl",),  # `wl` is Kueue's
        columns=[
            _OWNER,
            _column("Controller", ".spec.controllerRef.name"),
            _column("Root", ".spec.compositePodGroupTemplates[0].name"),
            _AGE,
            _column("Kind", ".spec.controllerRef.kind", wide=True),
        ],
    ),
    Kind(
        struct=PodGroup,
        plural="podgroups",
        short_names=("pg",),
        columns=_group_columns(condition=POD_GROUP_INITIALLY_SCHEDULED, minimum="minCount", groups=False),
    ),
    Kind(
        struct=CompositePodGroup,
        plural="compositepodgroups",
        short_names=("cpg",),
        columns=_group_columns(condition=COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED, minimum="minGroupCount", groups=True),
    ),
)
