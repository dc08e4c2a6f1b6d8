"""Marks on struct fields, from which the CRDs are generated.

The marks are in ``msgspec.Meta(extra=...)``, which decoding ignores. The API server has checked an object already, and
a second check here could fail a LIST of ten thousand for one odd object. The same line says what a field is, what
``kubectl explain`` prints for it, and what the API server refuses.
"""

from typing import Any

from msgspec import UNSET, Meta, Struct, UnsetType

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
PATH_SEGMENT = r"^([^./%][^/%]*|\.[^./%][^/%]*|\.\.[^/%]+)$"

MAX_LABEL = 63
MAX_SUBDOMAIN = 253
MAX_LABEL_KEY = MAX_SUBDOMAIN + 1 + MAX_LABEL
HIGHEST_USER_PRIORITY = 1_000_000_000


FIELD_IS_IMMUTABLE = "field is immutable"


class Rule(Struct, frozen=True, kw_only=True):
    """A CEL rule of the API server, beside the field or type that it validates.

    ``path`` is the field that the error names. ``message_expression`` is CEL for a more specific message; the API
    server falls back to ``message``. A rule that ``descends_into`` the items of a nested list is left out where
    ``Nesting`` ends, because the schema has no fields for those items.
    """

    expression: str
    message: str
    reason: str = "FieldValueInvalid"
    path: str = ""
    message_expression: str = ""
    descends_into: str = ""


class Nesting(Struct, frozen=True, kw_only=True):
    """How often a type may contain itself. Schemas cannot recurse, so they are unrolled that many times."""

    levels: int
    message: str


class Mark(Struct, frozen=True, kw_only=True):
    """Everything that the CRD says of a field beyond its Python type.

    - ``required``: must be present although its Python type has a default.
    - ``immutable``: cannot be set, changed or cleared after creation.
    - ``set_once``: may be set later, and cannot change after that.
    - ``from_template``: may be set by the write that sets the policy, and is immutable otherwise.
    - ``fixed_items``: the list keeps its items, which are identified by the first of its ``map_keys``.
    """

    pattern: str = ""
    min_length: int | None = None
    max_length: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    enum: tuple[str, ...] = ()
    format: str = ""
    default: Any | UnsetType = UNSET
    map_keys: tuple[str, ...] = ()
    atomic: bool = False
    required: bool = False
    immutable: bool = False
    set_once: bool = False
    from_template: bool = False
    fixed_items: bool = False
    rules: tuple[Rule, ...] = ()


def describe(text: str, **mark: Any) -> Meta:
    """Describe a field for ``kubectl explain``, and mark its constraints."""
    return Meta(description=text, extra={"mark": Mark(**mark)})


def dns_label(text: str, **mark: Any) -> Meta:
    """Describe a field that holds a DNS label (RFC 1123)."""
    return describe(text, pattern=DNS_LABEL, min_length=1, max_length=MAX_LABEL, **mark)


def dns_subdomain(text: str, **mark: Any) -> Meta:
    """Describe a field that holds a DNS subdomain (RFC 1123)."""
    return describe(text, pattern=DNS_SUBDOMAIN, min_length=1, max_length=MAX_SUBDOMAIN, **mark)
