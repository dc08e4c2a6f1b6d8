"""Commits one write: refuses it, drops one that changes nothing, stores it, and writes the journal."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from cpg_simulation.apiserver.defaults import timestamp
from cpg_simulation.apiserver.kinds import PODS, Kind
from cpg_simulation.apiserver.managed import Managed, Manager
from cpg_simulation.apiserver.refusals import bad_request, invalid, not_found
from cpg_simulation.apiserver.schemas import missing_field, schema_of
from cpg_simulation.apiserver.storage import Storage, Stored
from cpg_simulation.apiserver.values import Answer, Object, Request, Write

Refuse = Callable[[Request, Object | None, Object | None], Answer | None]


class Call(Struct, frozen=True, kw_only=True):
    """One request about one object or collection."""

    request: Request
    kind: Kind
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> str:
        """The key of the object in its collection."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def manager(self, *, applies: bool = False) -> Manager:
        """Return the field manager of the request."""
        request = self.request
        name = request.query.get("fieldManager") or request.manager or request.user or "unknown"
        return Manager(name, applies, self.subresource)

    def body(self) -> Any:  # noqa: ANN401  # JSON values
        """Return the body of the request."""
        try:
            return msgspec.json.decode(self.request.body)
        except msgspec.DecodeError as error:
            raise bad_request(f"the body is no JSON: {error}") from error

    def object_body(self) -> Object:
        """Return the body of a request that has to have an object."""
        found = self.body()
        if not isinstance(found, dict):
            raise bad_request(f"the object provided is unrecognized (must be of type {self.kind.resource.kind})")
        return found


class AnsweredError(Exception):
    """A request that the refusal of a test has answered."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


@dataclass
class Transactions:
    """Everything that a write needs."""

    storage: Storage
    now: Callable[[], float]
    new_uid: Callable[[], str]
    journal: list[Write] = field(default_factory=list)
    on_write: list[Callable[[Write], None]] = field(default_factory=list)
    refuse: Refuse | None = None

    def stamp(self) -> str:
        """Return the present time as in metadata."""
        return timestamp(self.now())

    def find(self, call: Call) -> Stored:
        """Return the object of a request."""
        found = self.storage.get(call.kind, call.key)
        if found is None:
            raise not_found(call.kind, call.name)
        return found

    def commit(self, call: Call, verb: str, new: Object, managed: Managed, *, is_dry: bool = False) -> Stored:
        """Store an object unless it is as before."""
        old = self.storage.get(call.kind, call.key)
        if call.kind.is_custom and (missing := missing_field(schema_of(call.kind.resource), new)):
            raise invalid(call.kind, call.name, missing[1:], "Required value", "FieldValueRequired")
        self.check(call, old, new)
        if old is not None and old.is_complete and old.plain == new and old.managed.is_same(managed):
            return old
        new = self.with_managers(new, managed)
        if is_dry or "dryRun" in call.request.query:
            return Stored(new, managed)
        stored = self.storage.put(call.kind, call.key, new, managed)
        assert stored is not None
        self._record(call, verb, old, stored)
        return stored

    def with_managers(self, new: Object, managed: Managed) -> Object:
        """Return an object with its managed fields if it is a nominated pod: others are not read for them."""
        if managed.kind is not PODS or not new["status"].get("nominatedNodeName"):
            return new
        return {**new, "metadata": {**new["metadata"], "managedFields": managed.entries(self.stamp())}}

    def remove(self, call: Call, verb: str, old: Stored) -> None:
        """Remove an object."""
        if "dryRun" not in call.request.query:
            self.storage.put(call.kind, call.key, None, old.managed)
            self._record(call, verb, old, None)

    def check(self, call: Call, old: Stored | None, new: Object | None) -> None:
        """Raise if the admission of a test refuses a write."""
        refusal = self.refuse(call.request, old.value if old else None, new) if self.refuse else None
        if refusal is not None:
            raise AnsweredError(refusal)

    def _record(self, call: Call, verb: str, old: Stored | None, new: Stored | None) -> None:
        write = Write(
            revision=self.storage.revision,
            time=self.now(),
            user=call.request.user,
            verb=verb,
            resource=call.kind.key,
            namespace=call.namespace,
            name=call.name,
            subresource=call.subresource,
            old=old.value if old else None,
            new=new.value if new else None,
            request=call.request,
        )
        self.journal.append(write)
        for listen in self.on_write:
            listen(write)
