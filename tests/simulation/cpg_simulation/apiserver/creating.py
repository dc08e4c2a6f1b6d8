"""Creates objects."""

import hashlib

from cpg_simulation.apiserver.defaults import completed, normalised, tidied, without_status
from cpg_simulation.apiserver.kinds import NAMESPACES, PRIORITY_CLASSES, Kind
from cpg_simulation.apiserver.managed import Managed
from cpg_simulation.apiserver.refusals import (
    RefusedError,
    already_exists,
    bad_request,
    forbidden,
    invalid,
    not_found,
)
from cpg_simulation.apiserver.storage import Stored
from cpg_simulation.apiserver.transactions import Call, Transactions
from cpg_simulation.apiserver.values import Answer, Object

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_CHARACTERS, MAX_BASE_CHARACTERS = 5, 58
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def create(transactions: Transactions, call: Call) -> Answer:
    """Create the object of a POST."""
    body = call.object_body()
    check_type(call.kind, body)
    stored = create_object(transactions, call, body)
    return Answer(201, stored.body)


def create_object(
    transactions: Transactions, call: Call, body: Object, *, verb: str = "create", managed: Managed | None = None
) -> Stored:
    """Create an object; an apply brings the owners of its fields."""
    metadata = body.get("metadata") or {}
    if metadata.get("namespace", call.namespace) != call.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    _check_namespace(transactions, call, metadata)
    uid = transactions.new_uid()
    name = call.name or _name(transactions, call, metadata, uid)
    call = Call(request=call.request, kind=call.kind, namespace=call.namespace, name=name, subresource="")
    new = _with_metadata(transactions, call, body, metadata, uid)
    classes = [one.value for one in transactions.storage.collections[PRIORITY_CLASSES].objects.values()]
    _check_class(call, new, classes)
    if metadata.get("resourceVersion") and "dryRun" not in call.request.query:
        raise RefusedError(500, "", "resourceVersion should not be set on objects to be created")
    if transactions.storage.get(call.kind, call.key) is not None:
        raise already_exists(call.kind, name)
    new = normalised(call.kind, new)
    if managed is None:
        managed = Managed(call.kind).updated(call.manager(), None, without_status(new) if call.kind.has_status else new)
    new = tidied(call.kind, completed(call.kind, new, classes, transactions.stamp()))
    return transactions.commit(call, verb, new, managed)


def check_type(kind: Kind, body: Object) -> None:
    """Refuse an object of another kind; custom resources have to name theirs."""
    resource = kind.resource
    wanted = {"apiVersion": resource.api_version, "kind": resource.kind}
    for name, value in wanted.items():
        if body.get(name, None if kind.is_custom else value) != value:
            raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")


def _check_namespace(transactions: Transactions, call: Call, metadata: Object) -> None:
    if not call.namespace:
        return
    found = transactions.storage.get(NAMESPACES, call.namespace)
    if found is None:
        raise not_found(NAMESPACES, call.namespace)
    if "deletionTimestamp" in found.value["metadata"]:
        why = f"unable to create new content in namespace {call.namespace} because it is being terminated"
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {call.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise forbidden(call.kind, metadata.get("name", ""), why, [cause])


def _name(transactions: Transactions, call: Call, metadata: Object, uid: str) -> str:
    """Return the name of a new object: its own, or a generated one that follows from its UID."""
    if metadata.get("name"):
        return str(metadata["name"])
    base = metadata.get("generateName")
    if not base:
        why = "Required value: name or generateName is required"
        raise invalid(call.kind, "", "metadata.name", why, "FieldValueRequired")
    digest, objects = uid, transactions.storage.collections[call.kind].objects
    while True:
        digest = hashlib.sha256(digest.encode()).hexdigest()
        number, size = int(digest, 16), len(SUFFIX_ALPHABET)
        suffix = "".join(SUFFIX_ALPHABET[number // size**place % size] for place in range(SUFFIX_CHARACTERS))
        name = f"{base[:MAX_BASE_CHARACTERS]}{suffix}"
        if (f"{call.namespace}/{name}" if call.namespace else name) not in objects:
            return name


def _with_metadata(transactions: Transactions, call: Call, body: Object, metadata: Object, uid: str) -> Object:
    dropped = {"deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields", "selfLink"}
    own = {
        **{name: value for name, value in metadata.items() if name not in dropped},
        "name": call.name,
        **({"namespace": call.namespace} if call.namespace else {}),
        "uid": uid,
        "creationTimestamp": transactions.stamp(),
        **({"generation": 1} if call.kind.has_generation else {}),
    }
    resource = call.kind.resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body, "metadata": own}


def _check_class(call: Call, new: Object, classes: list[Object]) -> None:
    name = (new.get("spec") or {}).get("priorityClassName")
    if call.kind.is_custom or not name:
        return
    if all(one["metadata"]["name"] != name for one in classes):
        raise forbidden(call.kind, call.name, f"no PriorityClass with name {name} was found")
