"""What Kopf gets of lists and watches: it keeps them a while as plain data, which is ten times as large as the JSON.

Managed fields, labels, annotations and owners can be a megabyte of metadata that no handler reads.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from cpg_api.decoding import decode
from cpg_api.scheduling.names import GROUP

OWN_ANNOTATIONS = f"{GROUP}/"


class _SlimMeta(Struct, omit_defaults=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[dict[str, Any]] | None = None
    finalizers: list[str] | None = None


class _SlimObject(Struct, omit_defaults=True, rename="camel"):
    metadata: _SlimMeta
    kind: str = ""
    api_version: str = ""
    spec: Raw | UnsetType = UNSET
    status: Raw | UnsetType = UNSET


class _Page(Struct, omit_defaults=True, rename="camel"):
    metadata: Raw
    items: list[Raw]
    kind: str = ""
    api_version: str = ""


class _Event(Struct):
    type: str
    object: Raw


def slim_page(body: bytes) -> bytes:
    """Return a page of a list with slim metadata of its items; other answers are unchanged."""
    try:
        page = decode(body, _Page)
    except msgspec.DecodeError:
        return body
    page.items = [_slim(item) for item in page.items]
    return msgspec.json.encode(page)


def slim_event(line: bytes) -> bytes:
    """Return an event with slim metadata; what is no event of an object is unchanged."""
    try:
        event = decode(line, _Event)
    except msgspec.DecodeError:
        return line
    if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
        return line
    return msgspec.json.encode(_Event(event.type, _slim(event.object)))


def _slim(whole: Raw) -> Raw:
    """Return an object with the metadata that handlers read; one with odd metadata is unchanged."""
    try:
        found = decode(whole, _SlimObject)
    except msgspec.DecodeError:
        return whole
    meta = found.metadata
    kept = {name: value for name, value in (meta.annotations or {}).items() if name.startswith(OWN_ANNOTATIONS)}
    meta.annotations = kept or None
    meta.owner_references = [owner for owner in meta.owner_references or () if owner.get("controller")] or None
    return Raw(msgspec.json.encode(found))
