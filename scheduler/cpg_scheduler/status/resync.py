"""What is to be said about a tree in which nobody waits.

The outcome of an attempt is told when its binds have worked. That is not enough: the process may die between the last
bind and the report, a bind of unknown outcome may have worked, and members that were waited for may be deleted. So what
the groups say is compared with what is so whenever something of their tree has changed, and once for every tree after a
start. It costs nothing for trees that were placed, whose groups say so for ever. Groups that were evicted as a whole
are looked at until they have their minimum again, and then say that it is over.

Of a tree that other schedulers place, only the last is ours to say: we may have evicted it.
"""

from collections.abc import Callable, Container, Iterable

from cpg_api.conditions import find_condition
from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_api.scheduling.names import DISRUPTION_TARGET, REASON_INVALID, REASON_SCHEDULER_ERROR, REASON_UNSCHEDULABLE
from cpg_api.scheduling.podgroup import PodGroup
from cpg_scheduler.cache.cluster import SINGLE_POD, ClusterCache
from cpg_scheduler.cache.conditions import is_disrupted
from cpg_scheduler.inadmissible import Inadmissible
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.status.conditions import condition_of
from cpg_scheduler.units import SchedulableUnit, build_unit, members_of, queue_key_of

OURS = frozenset({REASON_UNSCHEDULABLE, REASON_SCHEDULER_ERROR, REASON_INVALID})


def standing_of(state: ClusterCache, root: UnitKey) -> SchedulableUnit | Inadmissible | None:
    """Return what an attempt would say of a tree, or None where there is nothing new to say.

    That is so while somebody waits or is being bound, of whom others will speak, and where nobody has come yet.
    """
    if root.flavour == SINGLE_POD or queue_key_of(state, root) is not None:
        return None
    tree = state.stores[root.flavour].forest.tree_of(root.key)
    groups = [node.group for node in tree.nodes]
    members = [pod for group in groups for pod in _members(state, root, group)]
    if not any(map(_is_open, groups)) or any(pod.metadata.uid in state.assumed for pod in members):
        return None
    if not (members or any(map(_is_told, groups))):
        return None
    return build_unit(state, root)


def is_theirs(state: ClusterCache, root: UnitKey) -> bool:
    """Tell whether a tree has pods, apart from those that end or have ended, and none of them names us."""
    if root.flavour == SINGLE_POD:
        return False
    groups = (node.group for node in state.stores[root.flavour].forest.tree_of(root.key).nodes)
    members = (pod for group in groups for pod in _members(state, root, group))
    names = (pod.spec.scheduler_name for pod in members if not (pod.is_terminal or pod.is_terminating))
    first = next(names, state.scheduler_name)
    return first != state.scheduler_name and state.scheduler_name not in names


def bound_of(state: ClusterCache, root: UnitKey, unsure: Container[str]) -> dict[GroupKey, Group]:
    """Return the groups of a tree whose minimum has its nodes: of pods at a leaf, of such child groups above.

    A pod that is assumed to be bound does not count while its bind is ``unsure``, by UID.
    """
    if root.flavour == SINGLE_POD:
        return {}
    nodes = state.stores[root.flavour].forest.tree_of(root.key).nodes
    found: dict[GroupKey, Group] = {}
    for node in reversed(nodes):
        if isinstance(node.group, PodGroup):
            settled = members_of(state, root.flavour, node.key).scheduled
            have = sum(not ((uid := pod.metadata.uid) in state.assumed and uid in unsure) for pod in settled)
        else:
            have = sum(nodes[child].key in found for child in node.children)
        if have >= max(node.group.minimum, 1):
            found[node.key] = node.group
    return dict(reversed(found.items()))


def recovered(state: ClusterCache, root: UnitKey, is_going: Callable[[Pod], bool]) -> list[Group]:
    """Return the groups that say that they go as a whole when nobody of the tree is on the way out any more.

    What somebody else has said of a tree of others is theirs to take back.
    """
    if root.flavour == SINGLE_POD:
        return []
    groups = [node.group for node in state.stores[root.flavour].forest.tree_of(root.key).nodes]
    found = [group for group in groups if is_disrupted(group)]
    if found and is_theirs(state, root):
        found = [group for group in found if _is_evicted_by_us(state, group)]
    members = (pod for group in groups for pod in _members(state, root, group))
    return [] if not found or any(is_disrupted(pod) or is_going(pod) for pod in members) else found


def _members(state: ClusterCache, root: UnitKey, group: Group) -> Iterable[Pod]:
    return state.members(root.flavour, key_of(group))


def _is_evicted_by_us(state: ClusterCache, group: Group) -> bool:
    said = find_condition(group.status.conditions, DISRUPTION_TARGET)
    return said is not None and said.message.startswith(f"{state.scheduler_name}: ")


def _is_open(group: Group) -> bool:
    """Tell whether a group does not say for ever that it was placed, or says that it is leaving."""
    shown = condition_of(group)
    return shown is None or shown.status != "True" or is_disrupted(group)


def _is_told(group: Group) -> bool:
    """Tell whether a group says what a scheduler has found."""
    shown = condition_of(group)
    return shown is not None and shown.reason in OURS
