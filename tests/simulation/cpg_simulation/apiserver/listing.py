"""Lists collections, whole or in pages of one snapshot."""

import base64
import binascii
from collections.abc import Sequence

import msgspec

from cpg_simulation.apiserver.kinds import Kind
from cpg_simulation.apiserver.matching import matcher
from cpg_simulation.apiserver.refusals import bad_request, expired, too_large_version
from cpg_simulation.apiserver.storage import Storage, Stored
from cpg_simulation.apiserver.transactions import Call
from cpg_simulation.apiserver.values import Answer

LOST_PAGE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"
    " the continue parameter."
)


class _Token(msgspec.Struct, frozen=True):
    """Where a list continues: the snapshot, and the last key of the page before."""

    rv: int
    start: str


def list_objects(storage: Storage, call: Call) -> Answer:
    """Return the list, or a page of it."""
    query, collection = call.request.query, storage.collections[call.kind]
    token = _read_token(query.get("continue", ""))
    if token is None:
        revision, found = _check_version(storage, query.get("resourceVersion", "")), collection.sorted()
    else:
        if query.get("resourceVersion", "0") != "0":
            raise bad_request("specifying resource version is not allowed when using continue")
        if token.rv < storage.compacted or token.rv > storage.revision:
            raise expired(LOST_PAGE)
        revision, found = token.rv, [one for one in collection.at(token.rv) if one[0] > token.start]
    if call.namespace:
        found = [one for one in found if one[0].startswith(f"{call.namespace}/")]
    if "labelSelector" in query or "fieldSelector" in query:
        matches = matcher(query)
        found = [one for one in found if matches(one[1].value)]
    limit = int(query.get("limit") or 0)
    return Answer(200, _encoded(call.kind, found, limit, revision))


def _read_token(text: str) -> _Token | None:
    if not text:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Token)
    except (binascii.Error, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error


def _check_version(storage: Storage, text: str) -> int:
    """Return the revision of a list, which must not be older than the one that is asked for."""
    if text and not text.isdecimal():
        raise bad_request(f'invalid resource version: resourceVersion: Invalid value: "{text}"')
    if text and int(text) > storage.revision:
        raise too_large_version(int(text), storage.revision)
    return storage.revision


def _encoded(kind: Kind, found: Sequence[tuple[str, Stored]], limit: int, revision: int) -> bytes:
    metadata: dict[str, str | int] = {"resourceVersion": str(revision)}
    if limit and len(found) > limit:
        token = _Token(revision, found[limit - 1][0])
        metadata["continue"] = base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()
        metadata["remainingItemCount"] = len(found) - limit
        found = found[:limit]
    head = msgspec.json.encode(
        {"kind": f"{kind.resource.kind}List", "apiVersion": kind.resource.api_version, "metadata": metadata}
    )
    return b'%b,"items":[%b]}' % (head[:-1], b",".join(one.item for _, one in found))
