"""The API server: routes requests, and gives tests direct access to its objects."""

from collections.abc import Callable, Iterable, Sequence

from cpg_client.resources import group_path
from cpg_simulation.apiserver.binding import bind
from cpg_simulation.apiserver.creating import SYSTEM_CLASSES, create, create_object
from cpg_simulation.apiserver.deleting import delete
from cpg_simulation.apiserver.discovery import documents
from cpg_simulation.apiserver.kinds import NAMESPACES, PRIORITY_CLASSES, Kind, served_kinds, subresources_of
from cpg_simulation.apiserver.listing import list_objects
from cpg_simulation.apiserver.refusals import RefusedError, unknown_path
from cpg_simulation.apiserver.storage import State, Storage
from cpg_simulation.apiserver.transactions import AnsweredError, Call, Refuse, Transactions
from cpg_simulation.apiserver.updating import finalize, patch, put
from cpg_simulation.apiserver.values import Answer, Object, Request, Write
from cpg_simulation.apiserver.watches import Watch

FIRST_NAMESPACES = ("default", "kube-system")
HANDLERS: dict[tuple[str, bool, str], Callable[[Transactions, Call], Answer]] = {
    ("POST", False, ""): create,
    ("POST", True, "binding"): bind,
    ("PUT", True, ""): put,
    ("PUT", True, "status"): put,
    ("PUT", True, "finalize"): finalize,
    ("PATCH", True, ""): patch,
    ("PATCH", True, "status"): patch,
    ("DELETE", True, ""): delete,
}
"""The writes, by their method, whether they name an object, and the subresource."""


class ApiServer:
    """An API server with its storage. Time, UIDs and refusals come from outside, so it is deterministic."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        new_uid: Callable[[], str],
        custom: bool = True,
        native: bool = False,
        devices: bool = True,
        further: Sequence[Kind] = (),
        version: tuple[int, int] = (1, 37),
    ) -> None:
        """Start with the namespaces and priority classes of a new cluster; ``further`` kinds are those of owners."""
        kinds = (*served_kinds(custom=custom, native=native, devices=devices), *further)
        self._transactions = Transactions(Storage(kinds), now, new_uid)
        self._kinds = {kind.key: kind for kind in kinds}
        self._roots = {
            (group_path(one.resource.group, one.resource.version), one.resource.plural): one for one in kinds
        }
        self._documents = documents(kinds, version)
        self._routes: dict[str, tuple[Kind, str, str, str]] = {}
        self._watches: list[Watch] = []
        for name in FIRST_NAMESPACES:
            self._add(NAMESPACES, {"metadata": {"name": name}})
        for name, value in SYSTEM_CLASSES.items():
            self._add(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})

    @property
    def revision(self) -> int:
        """The revision of the last write."""
        return self._transactions.storage.revision

    @property
    def journal(self) -> list[Write]:
        """Every change of an object, in order."""
        return self._transactions.journal

    @property
    def on_write(self) -> list[Callable[[Write], None]]:
        """Called after each change."""
        return self._transactions.on_write

    @property
    def refuse(self) -> Refuse | None:
        """Admission: answers a write instead of carrying it out."""
        return self._transactions.refuse

    @refuse.setter
    def refuse(self, refuse: Refuse | None) -> None:
        self._transactions.refuse = refuse

    def handle(self, request: Request) -> Answer | Watch:
        """Answer a request. An accepted watch stays open until it is ended."""
        try:
            if request.path in self._documents:
                return Answer(200, self._documents[request.path])
            kind, namespace, name, subresource = self._routes.get(request.path) or self._route(request.path)
            return self._dispatch(
                Call(request=request, kind=kind, namespace=namespace, name=name, subresource=subresource)
            )
        except RefusedError as refused:
            return refused.answer
        except AnsweredError as answered:
            return answered.answer

    def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return an object by its resource, such as ``pods`` or ``podgroups.scheduling.cpg.dev``."""
        found = self._transactions.storage.get(self._kinds[resource], f"{namespace}/{name}" if namespace else name)
        return found.value if found else None

    def objects(self, resource: str) -> Iterable[Object]:
        """Return all objects of a resource in the order of their names."""
        return [one.value for _, one in self._transactions.storage.collections[self._kinds[resource]].sorted()]

    def compact(self, revision: int) -> None:
        """Forget the history up to a revision."""
        storage = self._transactions.storage
        storage.compacted = max(storage.compacted, min(revision, storage.revision))

    def restart(self, *, keeps_history: bool = True) -> None:
        """End all watches; with an empty watch cache, no older version can be watched."""
        storage = self._transactions.storage
        for watch in self._watches:
            watch.end()
        self._watches.clear()
        if not keeps_history:
            storage.watched_since = storage.revision

    def save(self) -> State:
        """Return a backup of etcd."""
        return self._transactions.storage.save()

    def restore(self, state: State) -> None:
        """Restore a backup of etcd: versions go back and grow anew."""
        self.restart()
        self._transactions.storage.restore(state)

    def _route(self, path: str) -> tuple[Kind, str, str, str]:
        """Return the kind, namespace, name and subresource of a path."""
        parts = path.strip("/").split("/")
        depth = 2 if parts[0] == "api" else 3
        root, parts = "/" + "/".join(parts[:depth]), parts[depth:]
        namespace = ""
        if len(parts) > 2 and parts[0] == "namespaces" and (root, parts[2]) in self._roots:
            namespace, parts = parts[1], parts[2:]
        kind = self._roots.get((root, parts[0])) if parts else None
        if kind is None or len(parts) > 3 or (namespace and not kind.resource.namespaced):
            raise unknown_path()
        name, subresource = [*parts[1:], "", ""][:2]
        if subresource and subresource not in subresources_of(kind):
            raise unknown_path()
        self._routes[path] = kind, namespace, name, subresource
        return kind, namespace, name, subresource

    def _dispatch(self, call: Call) -> Answer | Watch:
        method = call.request.method
        if method == "GET":
            return Answer(200, self._transactions.find(call).body) if call.name else self._read_all(call)
        handle = HANDLERS.get((method, bool(call.name), call.subresource))
        if handle is None:
            why = "the server does not allow this method on the requested resource"
            raise RefusedError(405, "MethodNotAllowed", why)
        return handle(self._transactions, call)

    def _read_all(self, call: Call) -> Answer | Watch:
        storage = self._transactions.storage
        if call.request.query.get("watch") not in ("true", "1"):
            return list_objects(storage, call)
        watch = Watch(storage, call)
        self._watches = [one for one in self._watches if not one.is_ended]
        self._watches.append(watch)
        return watch

    def _add(self, kind: Kind, body: Object) -> None:
        resource = kind.resource
        request = Request(method="POST", path=resource.path(), user="kube-apiserver", manager="kube-apiserver")
        call = Call(request=request, kind=kind, namespace="", name=body["metadata"]["name"], subresource="")
        create_object(self._transactions, call, body)
