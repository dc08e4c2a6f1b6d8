"""The parts that many kinds share: metadata, conditions, label selectors."""

from typing import Annotated

from msgspec import field

from cpg_api.schema import describe
from cpg_api.structs import ApiStruct


class OwnerReference(ApiStruct, frozen=True):
    """The object that owns this one."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(ApiStruct, frozen=True):
    """The fields of ``metadata`` that kube-cpg reads.

    Times stay the strings that the API server writes: all are UTC and of one width, so they sort as text.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return ``namespace/name``, or the name alone of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Condition(ApiStruct, frozen=True):
    """One observation about an object, as in every Kubernetes API."""

    type: Annotated[
        str,
        describe(
            "The kind of condition, in CamelCase.",
            min_length=1,
            max_length=316,
            pattern=(
                r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
            ),
        ),
    ]
    status: Annotated[str, describe("Whether it holds: True, False or Unknown.", enum=("True", "False", "Unknown"))]
    observed_generation: Annotated[
        int | None,
        describe("The metadata.generation that the condition was computed from.", minimum=0, format="int64"),
    ] = None
    last_transition_time: Annotated[
        str | None,
        describe("When the status last changed from one value to another.", format="date-time", required=True),
    ] = None
    reason: Annotated[
        str,
        describe(
            "Why, in one CamelCase word that programs can rely on.",
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            required=True,
        ),
    ] = ""
    message: Annotated[str, describe("Why, in a sentence for people.", max_length=32768)] = ""


class LabelSelectorRequirement(ApiStruct, frozen=True):
    """One expression of a label selector."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(ApiStruct, frozen=True):
    """A query over labels: every label and every expression must match."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None
