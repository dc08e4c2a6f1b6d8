"""The one door: every write of the operator goes through here, in order for each object, a bounded number at a time.

Nothing is retried here. What fails has its tree looked at again, after a wait that doubles or upon news of it, and that
look writes what is right then. That somebody else has changed the object meanwhile (a conflict), or removed it (not
found), is no failure but news.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import NoReturn

import msgspec
import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from cpg_api.decoding import decode
from cpg_api.meta import ObjectMeta
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.patching import Event, apply_status, merge, merge_status, record_event
from cpg_client.resources import Resource
from cpg_operator.metrics import Metrics
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import MANAGER, EventSpec, TreeKey, Verb, Write
from cpg_operator.writing.creations import SHOWN_WITHIN, RecentCreations
from cpg_operator.writing.expectations import Expectations
from cpg_operator.writing.retries import RetryState

STIRRED_WAIT = 1.0
"""Seconds after which a tree is looked at again though not all is written that was to be."""

CONFLICT_WAIT = 0.5
"""Seconds after which a tree is looked at again whose state was not the newest: the watch will have shown it."""


class Writer:
    """Carries out writes."""

    def __init__(
        self,
        connection: Connection,
        dirty: WorkQueue[TreeKey],
        *,
        instance: str,
        metrics: Metrics,
        answered: Callable[[str, Write, bytes], bool],
        missed: Callable[[str, Resource, ObjectMeta], None],
        in_flight: int = 16,
    ) -> None:
        """Write nothing yet.

        ``answered`` is told the flavour, what was written, and the object as it is then; it says whether to look again.
        ``missed`` is told of an object that is not there any more.
        """
        self._connection = connection
        self._dirty = dirty
        self._instance = instance
        self._metrics = metrics
        self._answered = answered
        self._missed = missed
        self._log: FilteringBoundLogger = structlog.get_logger()
        self._expected = Expectations(connection.timing.clock)
        self._creations = RecentCreations(connection.timing.clock)
        self.troubles = RetryState[TreeKey]()
        self._due: dict[tuple[str, str], tuple[TreeKey, Write]] = {}
        self._due_of: dict[TreeKey, set[tuple[str, str]]] = {}
        self._flying: dict[tuple[str, str], tuple[TreeKey, Write]] = {}
        self._stirred: set[TreeKey] = set()
        self._lanes: list[asyncio.Queue[tuple[str, str]]] = [asyncio.Queue() for _ in range(in_flight)]

    def __len__(self) -> int:
        return len(self._due)

    def want(self, tree: TreeKey, writes: Collection[Write]) -> None:
        """Have this written about a tree and nothing else: it is all that a look at it wants.

        What waits from an earlier look and is no longer wanted is not sent. Where it is being sent already the tree is
        looked at again after it: that look will find it wrong.
        """
        self._stirred.discard(tree)
        self.troubles.only(tree, {write.place for write in writes})
        wanted = {write.place for write in writes if self._submit(tree, write)}
        for place in self._due_of.get(tree, set()) - wanted:
            self._drop(place)
        for place, (flying_for, _) in self._flying.items():
            if flying_for == tree and place not in wanted:
                self._stir(tree)

    def _submit(self, tree: TreeKey, write: Write) -> bool:
        """Have something written unless it is so; tell whether, after what is sent or waits now, it will be."""
        place = write.place
        _, flying = self._flying.get(place, (tree, None))
        if flying is not None and write.repeats(flying):
            self._drop(place)
            return True
        if self._expected.met(write):
            return False
        if write.verb is Verb.CREATE and (left := self._creations.left(place[0])) > 0:
            self._dirty.mark_in(tree, left)
            return False
        replaced = self._drop(place)
        self._due[place] = (tree, write)
        self._due_of.setdefault(tree, set()).add(place)
        if replaced is None:
            self._lanes[hash(place[0]) % len(self._lanes)].put_nowait(place)
        else:
            self._finish(replaced[0])
        return True

    def _drop(self, place: tuple[str, str]) -> tuple[TreeKey, Write] | None:
        """Return what waits to be sent to a place, which waits no longer."""
        found = self._due.pop(place, None)
        if found is not None:
            places = self._due_of[found[0]]
            places.remove(place)
            if not places:
                del self._due_of[found[0]]
        return found

    def forget(self, uid: str) -> None:
        """Drop what is remembered of an object that is gone."""
        self._expected.forget(uid)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for lane in self._lanes:
                workers.create_task(self._work(lane))

    async def drained(self) -> None:
        """Return once everything that was asked for has been tried."""
        for lane in self._lanes:
            await lane.join()

    async def _work(self, lane: asyncio.Queue[tuple[str, str]]) -> NoReturn:
        while True:
            place = await lane.get()
            if (found := self._drop(place)) is not None:
                self._flying[place] = found
                try:
                    await self._try(*found)
                finally:
                    del self._flying[place]
                    self._finish(found[0])
            lane.task_done()

    def _finish(self, tree: TreeKey) -> None:
        """Note that a write has ended; after the last about a tree is it looked at again, where there is a reason."""
        if tree in self._stirred and tree not in self._due_of and all(one != tree for one, _ in self._flying.values()):
            self._stirred.remove(tree)
            self._dirty.mark(tree)

    def _stir(self, tree: TreeKey) -> None:
        """Have a tree looked at when all that is to be written about it has been, or after a while."""
        self._stirred.add(tree)
        self._dirty.mark_in(tree, STIRRED_WAIT)

    async def _try(self, tree: TreeKey, write: Write) -> None:
        """Carry out one write. No mistake of ours ends the task, whether made in the request or about its answer."""
        try:
            result = await self._carry_out(tree, write)
        except Exception:  # noqa: BLE001  # a mistake about one write must not stop the others
            result = "failure"
            self._log.exception("write failed", verb=write.verb.value, object=write.target.key)
            self._metrics.mistaken()
            self._failed(tree, write)
        self._metrics.wrote(write.verb.value, result)

    async def _carry_out(self, tree: TreeKey, write: Write) -> str:
        """Send one write, note its outcome, and return that as the metrics name it."""
        try:
            answer = await self._perform(tree, write)
        except ApiError as error:
            return self._refused(tree, write, error)
        except ClientError as error:
            self._log.warning("write failed", verb=write.verb.value, object=write.target.key, error=str(error))
            self._failed(tree, write)
            return "failure"
        self._expected.note(write)
        if write.verb is Verb.MERGE and _version(answer) == write.target.resource_version:
            self.troubles.note(tree, write.place, "it was taken, and nothing has changed")
        else:
            self.troubles.worked(tree, write.place)
        if write.again:
            self._stir(tree)
        if write.verb is Verb.CREATE:
            self._creations.note(write.place[0])
        return "success"

    def _refused(self, tree: TreeKey, write: Write, error: ApiError) -> str:
        if error.is_not_found:
            if f'"{write.target.name}"' in error.message:  # else it is the whole resource that is not served
                self._missed(tree.flavour, write.resource, write.target)
            return "gone"
        if error.is_conflict:
            self._dirty.mark_in(tree, CONFLICT_WAIT)
            return "conflict"
        if error.is_already_exists:
            self._creations.note(write.place[0])
            self._dirty.mark_in(tree, SHOWN_WITHIN)
            return "conflict"
        self._log.warning("write refused", verb=write.verb.value, object=write.target.key, error=str(error))
        self._failed(tree, write, error.message)
        return "failure"

    def _failed(self, tree: TreeKey, write: Write, words: str = "") -> None:
        self._dirty.mark_in(tree, self.troubles.note(tree, write.place, words))

    async def _perform(self, tree: TreeKey, write: Write) -> bytes:
        """Send one write, and its event after it; return the answer, newer than anything that was heard."""
        connection, resource, target = self._connection, write.resource, write.target
        answer = b""
        match write.verb:
            case Verb.APPLY_STATUS:
                answer = await apply_status(
                    connection, resource, target, status=write.body, manager=write.manager, unchanged=write.unchanged
                )
            case Verb.MERGE_STATUS:
                answer = await merge_status(connection, resource, target, status=write.body, unchanged=write.unchanged)
            case Verb.MERGE:
                answer = await merge(connection, resource, target, body=write.body, unchanged=write.unchanged)
            case Verb.CREATE:
                await connection.post(resource.path(target.namespace or None), write.body)
            case Verb.DELETE:
                options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": target.uid}}
                await connection.delete(resource.path(target.namespace or None, target.name), options)
            case Verb.TELL:
                pass
        if answer and self._answered(tree.flavour, write, answer):
            self._stir(tree)
        if write.word is not None:
            await self._tell(write, write.word)
        return answer

    async def _tell(self, write: Write, word: EventSpec) -> None:
        """Tell an event; if that fails, it stays untold: what was written speaks for itself."""
        event = Event(
            type="Warning" if word.warning else "Normal",
            reason=word.reason,
            action="Reconciling",
            note=word.note,
            controller=MANAGER,
            instance=self._instance,
        )
        try:
            await record_event(self._connection, write.resource, write.target, event)
        except ClientError as error:
            self._log.warning("event not told", object=write.target.key, reason=word.reason, error=str(error))


class _Bare(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def _version(answer: bytes) -> str | None:
    """Return the version of the object that was answered, if it was one."""
    try:
        return decode(answer, _Bare).metadata.resource_version or None
    except msgspec.DecodeError:
        return None
