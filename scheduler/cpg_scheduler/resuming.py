"""What a leader left behind of a plan that it was about when it died, as the API server shows it.

Its preemptor's pods are nominated, and whom it came to has been told. Those who are being deleted go. Of a unit that
goes whole some may have gone already, which nothing shows; so if anybody of it has been told, it was begun. All others
are units by themselves, and stay.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_engine.gangs.unit import POD
from cpg_scheduler.attempting import Ready
from cpg_scheduler.caches.state import State
from cpg_scheduler.evicting import Victim, is_told
from cpg_scheduler.plans import Record, preemptor_of
from cpg_scheduler.roots import RootKey


class LeftBehind(Struct, frozen=True):
    """What goes on of a plan, the units of it that are to be carried through, and who stays."""

    record: Record
    begun: Sequence[Victim]
    staying: Sequence[Pod]


def left_behind(state: State, root: RootKey, ready: Ready, nodes: Mapping[str, str]) -> LeftBehind:
    """Find out what became of the plan of a root whose pods, by UID, are nominated to these nodes."""
    preemptor = preemptor_of(ready)
    heard = {uid: pod for uid, pod in state.pods.items() if is_told(pod, preemptor.uid) and not pod.is_terminal}
    going = {uid for uid, pod in heard.items() if pod.is_terminating}
    units = [
        unit
        for unit in state.victims(ready.priority)
        if unit.key.kind != POD and not heard.keys().isdisjoint(unit.pods)
    ]
    victims = going.union(*(unit.pods for unit in units))
    record = Record(
        root=root,
        preemptor=preemptor,
        priority=ready.priority,
        pods=set(ready.pods),
        nominations=dict(nodes),
        evicts=frozenset(victims),
        victims=victims,
        is_committed=True,
    )
    why = f"{preemptor.key} needs its place"
    return LeftBehind(
        record=record,
        begun=[Victim([state.pods[uid] for uid in unit.pods], why) for unit in units],
        staying=[pod for uid, pod in heard.items() if uid not in victims],
    )
