"""Marks on struct fields from which the CRDs are generated.

The marks ride in ``msgspec.Meta(extra=...)``, which decoding ignores: what the API server has accepted is
decoded without a second check, so one odd object can never fail a LIST of ten thousand. The same lines
therefore say once what a field is, what ``kubectl explain`` prints for it, and what the API server refuses.
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
    """A CEL rule of the API server, beside the field or type that it guards.

    ``path`` is the field to blame; ``telling`` is CEL for a better message than ``message``, which the API server
    falls back to. A rule that looks ``into`` the items of a nested list is left out where
    ``Nesting`` ends, because nothing is known of those items there.
    """

    expression: str
    message: str
    reason: str = "FieldValueInvalid"
    path: str = ""
    message_expression: str = ""
    descends_into: str = ""


class Nesting(Struct, frozen=True, kw_only=True):
    """How often a type may contain itself; schemas cannot recurse, so they are unrolled that many times."""

    levels: int
    message: str


class Mark(Struct, frozen=True, kw_only=True):
    """All that the CRD says of a field beyond its Python type.

    A ``required`` field must be there although its Python type has a default; an ``immutable`` one can be neither
    changed nor set nor cleared after creation; a ``set_once`` one may be filled in later but then stays; one
    ``from_template`` may be filled in by the write that fills in the policy, and is immutable otherwise; a list of
    ``fixed_items`` neither gains nor loses one, told apart by the first of its ``map_keys``.
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
    """Describe a field for ``kubectl explain`` and mark what the API server demands of it."""
    return Meta(description=text, extra={"mark": Mark(**mark)})


def dns_label(text: str, **mark: Any) -> Meta:
    """Describe a field that holds a DNS label (RFC 1123)."""
    return describe(text, pattern=DNS_LABEL, min_length=1, max_length=MAX_LABEL, **mark)


def dns_subdomain(text: str, **mark: Any) -> Meta:
    """Describe a field that holds a DNS subdomain (RFC 1123)."""
    return describe(text, pattern=DNS_SUBDOMAIN, min_length=1, max_length=MAX_SUBDOMAIN, **mark)
