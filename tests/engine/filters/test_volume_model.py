"""All filters and allocations of volumes, compared with a slow model of one pod, node and object after the other.

The model keeps lists and evaluates them every time. It has no pools, counts or arrays, and nothing is ever undone.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from cpg_api.core.volumes import PersistentVolume, PersistentVolumeClaim, PodVolume
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PlacedPod, PodClass
from cpg_engine.decisions import VolumeAllocation
from cpg_engine.filters.registry import catalog_checks, dynamic_filters
from cpg_engine.testing import storage_builders
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storage_builders import DRIVER, inline, using
from cpg_engine.weights import Weights

ONCE, MANY, ALONE = ("ReadWriteOnce",), ("ReadWriteMany",), ("ReadWriteOncePod",)
ALL = (*ONCE, *MANY, *ALONE)
MADE_IN = "a"
"""The zone in which the class ``made`` provisions its volumes."""


class Node(Struct, frozen=True):
    """A node, its zone, and how many volumes it attaches."""

    name: str
    zone: str
    limit: int | None


class Volume(Struct, frozen=True):
    """A volume, the zones that reach it, and the claim that it is reserved for."""

    name: str
    size: int
    storage_class: str
    modes: tuple[str, ...]
    zones: tuple[str, ...] | None
    claim: str | None
    attached: bool


class Claim(Struct, frozen=True):
    """A claim, and the volume that it is bound to or the node for which one is being provisioned."""

    name: str
    size: int
    storage_class: str
    modes: tuple[str, ...]
    bound_to: str | None
    node: str | None


class User(Struct, frozen=True):
    """A pod, by its claims and its inline volumes; the first few run already."""

    claims: tuple[str, ...]
    inline: int


class Case(Struct, frozen=True):
    """A cluster with storage, running pods, and pods to be placed."""

    nodes: tuple[Node, ...]
    volumes: tuple[Volume, ...]
    claims: tuple[Claim, ...]
    running: tuple[tuple[User, str], ...]
    pending: tuple[User, ...]


NAMES = ("c0", "c1", "c2", "c3")
CLASSES = st.sampled_from(("there", "there", "made", "now"))
MODES = st.sampled_from((ONCE, ONCE, MANY, ALONE))
SIZES = st.integers(1, 3)
USERS = st.builds(User, claims=st.lists(st.sampled_from(NAMES), max_size=3).map(tuple), inline=st.integers(0, 1))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a small case with few names, sizes and zones, so that objects conflict."""
    nodes = tuple(
        Node(f"n{index}", draw(st.sampled_from("aab")), draw(st.sampled_from((None, 0, 1, 2))))
        for index in range(draw(st.integers(1, 4)))
    )
    zones = st.sampled_from((None, ("a",), ("b",), ("a", "b")))
    volumes = tuple(
        Volume(
            f"v{index}", draw(SIZES), draw(CLASSES), draw(st.one_of(MODES, st.just(ALL))), draw(zones),
            draw(st.sampled_from((None, None, None, *NAMES))), draw(st.booleans()),
        )
        for index in range(draw(st.integers(0, 6)))
    )  # fmt: skip
    bonds = st.sampled_from((None, None, *(volume.name for volume in volumes)))
    selected = st.sampled_from((None, None, None, None, nodes[0].name))
    claims = tuple(
        Claim(name, draw(SIZES), draw(CLASSES), draw(MODES), draw(bonds), draw(selected))
        for name in NAMES
        if draw(st.integers(0, 9))
    )
    homes = st.sampled_from([found.name for found in nodes])
    running = draw(st.lists(st.tuples(USERS, homes), max_size=3).map(tuple))
    return Case(nodes, volumes, claims, running, draw(st.lists(USERS, min_size=1, max_size=5).map(tuple)))


class Model:
    """The slow model."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.nodes = {found.name: found for found in case.nodes}
        self.volumes = {found.name: found for found in case.volumes}
        self.claims = {found.name: found for found in case.claims}
        self.placed = list(case.running)
        self.chosen: dict[str, VolumeAllocation] = {}

    def fits(self, user: User, home: str) -> bool:
        """Return whether a pod may be placed on a node."""
        if any(name not in self.claims for name in user.claims):
            return False
        if not all(self.is_open(claim, home) for claim in self.claims_of(user)):
            return False
        if len(self.choose(user, home)) < len(self.undecided(user)):
            return False
        limit = self.nodes[home].limit
        there = self.attached([other for other, at in self.placed if at == home], "old")
        more = self.attached([user], "new")
        new = [each for each in more if each not in there]
        return not new or limit is None or len(there) + len(new) <= limit

    def is_open(self, claim: Claim, home: str) -> bool:
        """Return whether the node is open to a claim, as far as the claim is decided."""
        if claim.modes == ALONE and any(claim.name in other.claims for other, _ in self.placed):
            return False
        if claim.bound_to is not None:
            return self.reaches(claim.bound_to, home)
        return claim.storage_class != "now" and self.is_near(claim, home)

    def claims_of(self, user: User) -> list[Claim]:
        """Return the claims of a pod, the smallest first."""
        return sorted((self.claims[name] for name in set(user.claims)), key=lambda claim: (claim.size, claim.name))

    def undecided(self, user: User) -> list[Claim]:
        """Return the claims without an allocation."""
        return [
            claim
            for claim in self.claims_of(user)
            if claim.bound_to is None and claim.node is None and claim.name not in self.chosen
        ]

    def reaches(self, volume: str, home: str) -> bool:
        """Return whether a volume is reached from a node."""
        zones = self.volumes[volume].zones
        return zones is None or self.nodes[home].zone in zones

    def provisions(self, claim: Claim, home: str) -> bool:
        """Return whether a volume for a claim can be provisioned for a node."""
        return claim.storage_class == "made" and self.nodes[home].zone == MADE_IN

    def is_near(self, claim: Claim, home: str) -> bool:
        """Return whether a claim with a volume, or with one being provisioned, is reached from a node."""
        choice = self.chosen.get(claim.name)
        if choice is not None and choice.volume is not None:
            return self.reaches(choice.volume, home)
        selected = choice.node if choice is not None else claim.node
        if selected is None:
            return True
        alike = claim.modes == MANY and self.nodes[selected].zone == self.nodes[home].zone
        return self.provisions(claim, selected) and (home == selected or alike)

    def choose(self, user: User, home: str) -> list[VolumeAllocation]:
        """Return the allocations for a pod on a node; one that cannot be made is missing."""
        found: list[VolumeAllocation] = []
        for claim in self.undecided(user):
            free = self.candidates(claim, {choice.volume for choice in (*self.chosen.values(), *found)})
            reached = [volume for volume in free if self.reaches(volume.name, home)]
            if reached:
                best = min(reached, key=lambda volume: (volume.size, volume.name))
                found.append(VolumeAllocation(f"default/{claim.name}", best.name, home))
            elif self.provisions(claim, home):
                found.append(VolumeAllocation(f"default/{claim.name}", None, home))
        return found

    def candidates(self, claim: Claim, taken: set[str | None]) -> list[Volume]:
        """Return the volumes that a claim may have: the one reserved for it, or any free one."""
        sound = [
            volume
            for volume in self.case.volumes
            if volume.storage_class == claim.storage_class and volume.size >= claim.size
        ]
        own = [volume for volume in sound if volume.claim == claim.name]
        if own:
            return [min(own, key=lambda volume: (volume.size, volume.name))]
        return [
            volume
            for volume in sound
            if volume.claim is None and volume.name not in taken and set(claim.modes) <= set(volume.modes)
        ]

    def attached(self, users: list[User], tag: str) -> list[tuple[str, str]]:
        """Return what pods attach: each volume once, and inline volumes once per pod."""
        found = set()
        for name in {name for user in users for name in user.claims if name in self.claims}:
            claim = self.claims[name]
            if claim.bound_to is not None:
                if self.volumes[claim.bound_to].attached:
                    found.add(("volume", claim.bound_to))
            elif claim.storage_class in {"made", "now"}:
                found.add(("claim", name))
        return [*found, *((tag, f"{index} {each}") for index, user in enumerate(users) for each in range(user.inline))]

    def place(self, user: User, home: str) -> list[VolumeAllocation]:
        """Place a pod; return its allocations."""
        self.chosen |= {choice.claim.removeprefix("default/"): choice for choice in self.choose(user, home)}
        self.placed.append((user, home))
        return sorted(
            (self.chosen[name] for name in set(user.claims) if name in self.chosen), key=lambda choice: choice.claim
        )


def ledger_of(case: Case) -> Ledger:
    """Return the ledger that mirrors a case."""
    ledger = Ledger()
    for found in case.nodes:
        ledger.put_node(node(found.name, pods=9, labels={"zone": found.zone}))
        storage_builders.stock(ledger.storage, storage_builders.csi_node(found.name, limit=found.limit, keys=["zone"]))
    storage_builders.stock(
        ledger.storage,
        storage_builders.storage_class("there"),
        storage_builders.storage_class("made", provisioner=DRIVER, at=[{"zone": [MADE_IN]}]),
        storage_builders.storage_class("now", provisioner=DRIVER, mode="Immediate"),
        *(stored_volume(found) for found in case.volumes),
        *(stored_claim(found) for found in case.claims),
    )
    for index, (user, home) in enumerate(case.running):
        ledger.put_pod(pod(f"r{index}", volumes=volumes_of(user)), home)
    return ledger


def stored_volume(found: Volume) -> PersistentVolume:
    """Return the object of a volume."""
    return storage_builders.volume(
        found.name, size=found.size, storage_class=found.storage_class, modes=found.modes,
        at=None if found.zones is None else {"zone": found.zones}, claimed_by=found.claim,
        handle=found.name if found.attached else "",
    )  # fmt: skip


def stored_claim(found: Claim) -> PersistentVolumeClaim:
    """Return the object of a claim."""
    return storage_builders.claim(
        found.name, size=found.size, storage_class=found.storage_class, modes=found.modes,
        bound_to=found.bound_to or "", node=found.node,
    )  # fmt: skip


def volumes_of(user: User) -> tuple[PodVolume, ...]:
    """Return the volumes of a pod."""
    return (*using(*user.claims), *inline(*[DRIVER] * user.inline))


def open_nodes(ledger: Ledger, pod_class: PodClass) -> set[str]:
    """Return the nodes that every filter of volumes passes for a class."""
    rows = ledger.cluster.everything()
    checks = [*catalog_checks(pod_class, ledger, rows)]
    for state in [found.pre_filter(pod_class) for found in dynamic_filters(ledger, Weights())]:
        if state is not None:
            assert (state.could_ever_pass(rows) >= state.passes(rows)).all()
            checks += state.checks(rows)
    passed = np.logical_and.reduce([flags for _, flags in checks] or [np.ones(len(rows), dtype=np.bool_)])
    return {ledger.cluster.name(row) for row in rows[passed].tolist()}


def state(ledger: Ledger) -> tuple[object, ...]:
    """Return everything that a rollback has to restore."""
    bindings, attachments = ledger.volume_allocator, ledger.attachments
    return (
        ledger.used.tolist(),
        list(bindings.allocated.items()),
        set(bindings._taken),
        {shape: pool.free.tolist() for shape, pool in bindings._pools.items()},
        dict(attachments.users),
        {row: dict(claims) for row, claims in attachments._claims_at.items()},
        {row: dict(drivers) for row, drivers in attachments._inline_at.items()},
        {handle: dict(rows) for handle, rows in attachments._attached.items()},
        {driver: column.tolist() for driver, column in attachments._counts.items()},
    )


@settings(max_examples=400)
@given(cases(), st.data())
def test_the_filters_agree_with_the_model(case: Case, data: st.DataObject) -> None:
    """They do node by node and pod by pod, with the same volume for the same claim."""
    ledger, model = ledger_of(case), Model(case)
    for user in case.pending:
        pod_class = ledger.class_of(pod("p", volumes=volumes_of(user)))
        expected = {name for name in model.nodes if model.fits(user, name)}
        assert open_nodes(ledger, pod_class) == expected
        if expected:
            home = data.draw(st.sampled_from(sorted(expected)))
            row = ledger.cluster.row_of[home]
            ledger.place(pod_class, np.array([row]))
            (chosen,) = ledger.allocators.allocations([PlacedPod(pod_class, row)])
            assert list(chosen if user.claims else ()) == model.place(user, home)


@settings(max_examples=200)
@given(cases(), st.data())
def test_a_rollback_leaves_no_trace(case: Case, data: st.DataObject) -> None:
    """Whatever was placed since a mark, on any node, fitting or not, and read in between."""
    ledger = ledger_of(case)
    classes = [ledger.class_of(pod("p", volumes=volumes_of(user))) for user in case.pending]
    for pod_class in classes:
        open_nodes(ledger, pod_class)
    ledger.volume_allocator._refresh()
    names = st.lists(st.sampled_from([found.name for found in case.nodes]), min_size=1, max_size=3)
    marks = []
    for pod_class in classes:
        marks.append((ledger.mark(), state(ledger)))
        ledger.place(pod_class, np.array([ledger.cluster.row_of[name] for name in data.draw(names)]))
        open_nodes(ledger, pod_class)
    for mark, before in reversed(marks):
        ledger.rollback(mark)
        now = state(ledger)
        assert now[:3] == before[:3]
        assert now[4:7] == before[4:7]
        assert without_zeros(now) == without_zeros(before)


def without_zeros(found: tuple[object, ...]) -> tuple[object, ...]:
    """Return pools and counts without those made later, and without rows of zeros."""
    pools, handles, counts = found[3], found[7], found[8]
    assert isinstance(pools, dict)
    assert isinstance(counts, dict)
    return handles, {driver: column for driver, column in counts.items() if any(column)}


@settings(max_examples=200)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(case: Case, random: object) -> None:
    """Storage objects may come in any order, before nodes and pods or after them."""
    first = ledger_of(case)
    objects: list[storage_builders.Stored] = [*map(stored_volume, case.volumes), *map(stored_claim, case.claims)]
    getattr(random, "shuffle")(objects)  # noqa: B009 - hypothesis' Random has no public type
    second = Ledger()
    for index, (user, home) in enumerate(case.running):
        second.put_pod(pod(f"r{index}", volumes=volumes_of(user)), home)
    storage_builders.stock(second.storage, *objects)
    rest = ledger_of(Case(case.nodes, (), (), (), ()))
    second.storage.classes, second.storage.drivers = rest.storage.classes, rest.storage.drivers
    for found in case.nodes:
        second.put_node(node(found.name, pods=9, labels={"zone": found.zone}))
    for user in case.pending:
        here, there = (one.class_of(pod("p", volumes=volumes_of(user))) for one in (first, second))
        assert open_nodes(first, here) == open_nodes(second, there)
