"""The requests of an eviction: deletions and conditions, and what the errors of the API server mean."""

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import DISRUPTION_TARGET, REASON_PREEMPTION
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.patching import apply_status, delete_pod, set_pod_status
from cpg_client.resources import PODS, Resource
from cpg_engine.gangs.unit import POD
from cpg_scheduler.preemption.jobs import Preemptor
from cpg_scheduler.preemption.victim_condition import EVICTION_MANAGER, victim_message

RETRIED = frozenset({401, 408, 409, 429})
"""Client errors that may not come again: the token is read anew, and the server was busy or the object has changed."""
INTERNAL_ERROR = 500
"""The answer where the server could not do what was asked, such as call a webhook."""
BAD_REQUEST = 400
"""The answer to a dry run where a webhook has side effects."""

Act: TypeAlias = Callable[[], Awaitable[None]]


class EvictionRequests:
    """Builds and sends the requests."""

    def __init__(
        self,
        connection: Connection,
        resource_of: Callable[[Group], Resource | None],
        *,
        scheduler_name: str,
    ) -> None:
        """Send by this connection; ``resource_of`` returns None for a group that is gone."""
        self._connection = connection
        self._resource_of = resource_of
        self._scheduler_name = scheduler_name

    def deletion(self, pod: Pod, *, dry_run: bool = False) -> Act:
        """Return the deletion of a pod; a webhook that supports no dry run is no refusal."""

        async def act() -> None:
            try:
                await delete_pod(self._connection, pod.metadata, dry_run=dry_run)
            except ApiError as error:
                if not (dry_run and error.status == BAD_REQUEST):
                    raise

        return act

    def victim_mark(self, pod: Pod, preemptor: Preemptor) -> Act:
        """Return the write of a victim's condition."""
        return self._pod_mark(pod, "True", victim_message(self._scheduler_name, preemptor))

    def retraction(self, pod: Pod) -> Act:
        """Return the write of the condition of a pod that stays."""
        return self._pod_mark(pod, "False", self._staying)

    async def mark_group(self, group: Group, preemptor: Preemptor) -> None:
        """Set the condition of a group that is disrupted as a whole."""
        await self._mark_group(group, "True", victim_message(self._scheduler_name, preemptor))

    async def retract_group(self, group: Group) -> None:
        """Set the condition of a group that stays."""
        await self._mark_group(group, "False", self._staying)

    async def clear_nomination(self, pod: Pod) -> None:
        """Remove the nomination of a pod."""
        await set_pod_status(self._connection, pod.metadata, nominated_node=None)

    def reference(self, preemptor: Preemptor) -> tuple[Resource, ObjectMeta] | None:
        """Return the preemptor as the object that an event relates to, if its resource is known."""
        key = preemptor.key
        resource = self._resource_of(preemptor.group) if preemptor.group else PODS if key.kind == POD else None
        if resource is None:
            return None
        return resource, ObjectMeta(name=key.name, namespace=key.namespace, uid=preemptor.uid)

    @property
    def _staying(self) -> str:
        return f"{self._scheduler_name}: not evicted after all"

    def _pod_mark(self, pod: Pod, status: Literal["True", "False"], message: str) -> Act:
        condition = PodCondition(
            type=DISRUPTION_TARGET,
            status=status,
            reason=REASON_PREEMPTION,
            message=message,
            last_transition_time=self._connection.timing.whole_seconds(),
        )
        return lambda: set_pod_status(self._connection, pod.metadata, condition)

    async def _mark_group(self, group: Group, status: Literal["True", "False"], message: str) -> None:
        resource = self._resource_of(group)
        if resource is None:
            return
        condition = Condition(
            type=DISRUPTION_TARGET,
            status=status,
            reason=REASON_PREEMPTION,
            message=message,
            observed_generation=group.metadata.generation,
            last_transition_time=self._connection.timing.whole_seconds(),
        )
        body = {"conditions": [condition]}
        await apply_status(self._connection, resource, group.metadata, status=body, manager=EVICTION_MANAGER)


async def failure_of(act: Act) -> ClientError | None:
    """Send once and return the error; none if the pod is gone, even if another pod has its name now."""
    try:
        await act()
    except ApiError as error:
        return None if error.is_not_found or (error.is_conflict and _names_another_pod(error)) else error
    except ClientError as error:
        return error
    return None


def is_harmless(error: ClientError) -> bool:
    """Return whether an error of a condition or nomination needs no log line: the object is gone or has changed."""
    return isinstance(error, ApiError) and (error.is_not_found or error.is_conflict)


def is_doubtful(error: ClientError) -> bool:
    """Return whether a refusal may be transient: a right that we lack, or a failure of the server itself."""
    return _lacks_right(error) or (isinstance(error, ApiError) and error.status == INTERNAL_ERROR)


def is_final(error: ClientError) -> bool:
    """Return whether the same request would be answered in the same way again."""
    return isinstance(error, ApiError) and 400 <= error.status < 500 and error.status not in RETRIED


def _names_another_pod(error: ApiError) -> bool:
    """Return whether a conflict is about the UID: the API server has no code of its own for that."""
    return "uid" in error.message.lower() or "another object has this name" in error.message


def _lacks_right(error: ClientError) -> bool:
    """Return whether we lack a right: admission names the pod, authorization names a user."""
    return isinstance(error, ApiError) and error.is_forbidden and ' is forbidden: User "' in error.message
