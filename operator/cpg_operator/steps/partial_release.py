"""Deletes the pods of a partial tree once it has held nodes for longer than the user wants."""

from cpg_api.conditions import status_since
from cpg_api.scheduling.forest import Anchor
from cpg_api.scheduling.health import HealthReason, holds_node
from cpg_api.scheduling.names import EVENT_RELEASED
from cpg_api.scheduling.partial_release import PARTIAL, read_partial_release
from cpg_client.resources import PODS
from cpg_operator.context import ReconcileContext
from cpg_operator.writes import NOTHING, EventSpec, StepResult, Verb, Write


def release_partial(context: ReconcileContext) -> StepResult:
    """Delete the pods that hold nodes, once the time in the annotation has passed.

    Each time the tree becomes partial gets one event, however many reconciles the release takes.
    """
    if context.tree.anchor is not Anchor.ROOT or context.health[0].reason is not HealthReason.PARTIAL:
        return NOTHING
    root = context.tree.root
    after = read_partial_release(root, context.partial_after).after_seconds
    since = status_since(root.status.conditions, PARTIAL)
    if after is None or since is None:
        return NOTHING
    seconds = context.seconds_since(since)
    left = after - seconds
    if left > 0:
        return StepResult(requeue_after=left)
    holding = [pod for pod in context.pods() if holds_node(pod)]
    note = f"below its minimum for {seconds:.0f} s: {context.health[0].message}; deleting {len(holding)} pods"
    event = Write(
        verb=Verb.EVENT,
        resource=context.resource(root),
        target=root.metadata,
        part="release",
        body={"since": since},
        event=EventSpec(reason=EVENT_RELEASED, note=note, warning=True),
    )
    deletions = (
        Write(verb=Verb.DELETE, resource=PODS, target=pod.metadata, part="release")
        for pod in sorted(holding, key=lambda pod: pod.metadata.key)
    )
    return StepResult(writes=(event, *deletions))
