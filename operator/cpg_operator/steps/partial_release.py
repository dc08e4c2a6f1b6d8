"""Has half a gang held nodes for longer than the user wants? Then give them back."""

from cpg_api.conditions import status_since
from cpg_api.scheduling.forest import Anchor
from cpg_api.scheduling.health import HealthReason, holds_node
from cpg_api.scheduling.names import EVENT_RELEASED
from cpg_api.scheduling.partial_release import PARTIAL, read_partial_release
from cpg_client.resources import PODS
from cpg_operator.context import ReconcileContext
from cpg_operator.writes import NOTHING, EventSpec, StepResult, Verb, Write


def release(scene: ReconcileContext) -> StepResult:
    """Delete the pods that hold nodes, once the time that the user stated has gone by.

    That is told once for each time that the tree has become half a gang, however many looks it takes.
    """
    if scene.tree.anchor is not Anchor.ROOT or scene.standings[0].reason is not HealthReason.PARTIAL:
        return NOTHING
    root = scene.tree.root
    after = read_partial_release(root, scene.partial_after).after_seconds
    since = status_since(root.status.conditions, PARTIAL)
    if after is None or since is None:
        return NOTHING
    left = since + after - scene.now
    if left > 0:
        return StepResult(again_in=left)
    holding = [pod for _, pod in scene.pods() if holds_node(pod)]
    note = (
        f"below its minimum for {scene.now - since:.0f} s: {scene.standings[0].message}; deleting {len(holding)} pods"
    )
    told = Write(
        verb=Verb.TELL,
        resource=scene.resource(root),
        target=root.metadata,
        part="release",
        body={"since": since},
        word=EventSpec(reason=EVENT_RELEASED, note=note, warning=True),
    )
    deletions = (
        Write(verb=Verb.DELETE, resource=PODS, target=pod.metadata, part="release")
        for pod in sorted(holding, key=lambda pod: pod.metadata.key)
    )
    return StepResult(writes=(told, *deletions))
