"""What a pod requires of other pods, compiled: host ports, pod affinity, topology spread.

Compiled forms are values, so two classes with the same selector share one query and its counts.

``matchLabelKeys`` is resolved here, as the API server and kube-scheduler do: a key that the pod has a label of becomes
one more expression of the selector. For affinity terms the API server does so when the pod is created, and what it
wrote stands, even if the label has changed since. A term that comes from a file still lacks the expression.

Malformed parts are left out and reported as problems of the pod, so a running pod still counts. kube-scheduler's
default spread constraints for pods without any (``List`` and ``System`` defaulting) are left out on purpose: they would
make the pods of every Service depend on other pods, which is slow. Users can write them into the pods.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.affinity import PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from cpg_api.core.pod import Pod, PodSpec
from cpg_api.meta import LabelSelector, LabelSelectorRequirement
from cpg_api.problems import Problem, quote
from cpg_api.selectors import LabelMatcher, Labels

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the word for all addresses of a node; nothing is bound here
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"
HONOR = "Honor"
MAX_WEIGHT = 100
MAX_SKEW = 2**31 - 1
MATCH_ALL = LabelMatcher()
NO_LABELS: Labels = {}

T = TypeVar("T")


class HostPort(Struct, frozen=True):
    """A port of the node itself that a pod uses."""

    address: str
    protocol: str
    port: int


PortNumber = tuple[str, int]
"""A protocol and a port, at any address."""


def by_number(ports: Iterable[HostPort]) -> dict[PortNumber, AbstractSet[str]]:
    """Return the addresses of each port; there may be ten thousand, so pairs are not compared."""
    found: dict[PortNumber, set[str]] = {}
    for port in ports:
        found.setdefault((port.protocol, port.port), set()).add(port.address)
    return dict(found)


def ports_conflict(some: AbstractSet[str], others: AbstractSet[str]) -> bool:
    """Return whether a node cannot give a port at both sets of addresses; 0.0.0.0 includes every address."""
    return ANY_ADDRESS in some or ANY_ADDRESS in others or not some.isdisjoint(others)


class AffinityTerm(Struct, frozen=True, cache_hash=True):
    """Selects some pods; the domains in which to be near them, or to avoid them, are those of a node label."""

    key: str
    labels: LabelMatcher
    namespaces: frozenset[str]
    namespace_labels: LabelMatcher

    def selects(self, namespace: str, labels: Labels, namespaces: Mapping[str, Labels]) -> bool:
        """Return whether a pod is selected, given the labels of all namespaces; an unknown namespace has none."""
        if namespace not in self.namespaces and not self.namespace_labels.matches(namespaces.get(namespace, NO_LABELS)):
            return False
        return self.labels.matches(labels)


def required_label(matcher: LabelMatcher) -> tuple[str, str] | None:
    """Return a label that everything that the selector selects must have, if it is as simple as that."""
    if matcher.equal:
        return matcher.equal[0]
    for expression in matcher.expressions:
        if expression.operator == "In" and len(expression.values) == 1:
            (only,) = expression.values
            return expression.key, only
    return None


class AffinityTerms(Struct, frozen=True, dict=True):
    """The affinity of a pod to other pods; preferred terms have a weight, which is negative for anti-affinity.

    There may be a thousand terms, so they are also indexed by their topology keys.
    """

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[tuple[int, AffinityTerm], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.required or self.required_anti or self.preferred)

    @cached_property
    def required_by_key(self) -> Mapping[str, tuple[AffinityTerm, ...]]:
        """Return the required affinity of each topology key."""
        return _grouped((term.key, term) for term in self.required)

    @cached_property
    def required_anti_by_key(self) -> Mapping[str, tuple[AffinityTerm, ...]]:
        """Return the required anti-affinity of each topology key."""
        return _grouped((term.key, term) for term in self.required_anti)

    @cached_property
    def preferred_by_key(self) -> Mapping[str, tuple[tuple[int, AffinityTerm], ...]]:
        """Return the preferred terms of each topology key, with their weights."""
        return _grouped((term.key, (weight, term)) for weight, term in self.preferred)

    @cached_property
    def needed_labels(self) -> frozenset[tuple[str, str] | None]:
        """Return labels, one of which a pod must have to be selected by any of the terms; None stands for any pod."""
        terms = (*self.required, *self.required_anti, *(term for _, term in self.preferred))
        return frozenset(required_label(term.labels) for term in terms)


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, tuple[T, ...]]:
    """Return the values of each key, in order."""
    found: dict[str, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


class SpreadConstraint(Struct, frozen=True):
    """How evenly pods have to spread over the domains of a label.

    ``counted`` selects the pods that count; ``own`` is 1 if the pod with the constraint is one of them. The two differ
    in one corner case, as in kube-scheduler: an empty selector selects the pod itself but counts no pods.
    """

    key: str
    max_skew: int
    min_domains: int
    hard: bool
    counted: LabelMatcher
    own: int
    honors_affinity: bool
    honors_taints: bool


class Relations(Struct, frozen=True, dict=True):
    """Everything that a pod requires of other pods, and what in it is malformed."""

    ports: frozenset[HostPort] = frozenset()
    terms: AffinityTerms = AffinityTerms()
    spread: tuple[SpreadConstraint, ...] = ()
    problems: tuple[Problem, ...] = ()

    @cached_property
    def addresses(self) -> Mapping[PortNumber, AbstractSet[str]]:
        """Return the addresses at which it uses each port."""
        return by_number(self.ports)


class _RawTerm(NamedTuple):
    """A term as it stands in the pod; a required term has no weight."""

    path: str
    anti: bool
    weight: int | None
    term: PodAffinityTerm


def asked_labels(spec: PodSpec) -> Iterator[str]:
    """Yield the keys of pods' labels that the pod's selectors ask for."""
    for constraint in spec.topology_spread_constraints or ():
        yield from _keys(constraint.label_selector)
        yield from constraint.match_label_keys or ()
    for raw in _raw_terms(spec):
        yield from _keys(raw.term.label_selector)
        yield from raw.term.match_label_keys or ()
        yield from raw.term.mismatch_label_keys or ()


def relations_of(pod: Pod, labels: Labels) -> Relations:
    """Compile what a pod requires of others, given those of its labels that selectors in the cluster ask for."""
    problems: list[Problem] = []
    return Relations(
        ports=frozenset(_host_ports(pod.spec)),
        terms=_terms(pod, labels, problems),
        spread=tuple(_spread(pod.spec, labels, problems)),
        problems=tuple(problems),
    )


def _host_ports(spec: PodSpec) -> Iterator[HostPort]:
    """Yield the host ports of containers and sidecars; other init containers have ended when the pod runs."""
    sidecars = (found for found in spec.init_containers or () if found.restart_policy == "Always")
    for container in (*(spec.containers or ()), *sidecars):
        for port in container.ports or ():
            if port.host_port > 0:
                yield HostPort(port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port)


def _keys(selector: LabelSelector | None) -> Iterator[str]:
    if selector is not None:
        yield from selector.match_labels or ()
        yield from (expression.key for expression in selector.match_expressions or ())


def _raw_terms(spec: PodSpec) -> Iterator[_RawTerm]:
    """Yield all terms, of affinity and anti-affinity, required and preferred."""
    if spec.affinity is not None:
        yield from _listed(spec.affinity.pod_affinity, "spec.affinity.podAffinity", anti=False)
        yield from _listed(spec.affinity.pod_anti_affinity, "spec.affinity.podAntiAffinity", anti=True)


def _listed(affinity: PodAffinity | None, path: str, *, anti: bool) -> Iterator[_RawTerm]:
    if affinity is None:
        return
    for index, term in enumerate(affinity.required_during_scheduling_ignored_during_execution or ()):
        yield _RawTerm(f"{path}.required[{index}]", anti, None, term)
    for index, weighted in enumerate(affinity.preferred_during_scheduling_ignored_during_execution or ()):
        yield _RawTerm(f"{path}.preferred[{index}]", anti, weighted.weight, weighted.pod_affinity_term)


def _terms(pod: Pod, labels: Labels, problems: list[Problem]) -> AffinityTerms:
    needs: list[AffinityTerm] = []
    avoids: list[AffinityTerm] = []
    likes: list[tuple[int, AffinityTerm]] = []
    for raw in _raw_terms(pod.spec):
        term = _term(raw.term, pod.metadata.namespace, labels, raw.path)
        wrong = tuple(_term_problems(raw, term))
        problems.extend(wrong)
        if wrong:
            continue
        if raw.weight is not None:
            likes.append((-raw.weight if raw.anti else raw.weight, term))
        else:
            (avoids if raw.anti else needs).append(term)
    return AffinityTerms(required=tuple(needs), required_anti=tuple(avoids), preferred=tuple(likes))


def _term(raw: PodAffinityTerm, namespace: str, labels: Labels, path: str) -> AffinityTerm:
    """Compile a term; one without namespaces and namespace selector means the namespace of the pod."""
    everything_unsaid = not raw.namespaces and raw.namespace_selector is None
    return AffinityTerm(
        key=raw.topology_key,
        labels=LabelMatcher.compile(_with_label_keys(raw, labels), f"{path}.labelSelector"),
        namespaces=frozenset((namespace,) if everything_unsaid else raw.namespaces or ()),
        namespace_labels=LabelMatcher.compile(raw.namespace_selector, f"{path}.namespaceSelector"),
    )


def _with_label_keys(raw: PodAffinityTerm, labels: Labels) -> LabelSelector | None:
    """Return the selector with the (mis)match label keys that the API server has not added already."""
    selector = raw.label_selector
    if selector is None:
        return None
    there = {(expression.key, expression.operator) for expression in selector.match_expressions or ()}
    match = [key for key in raw.match_label_keys or () if (key, "In") not in there]
    mismatch = [key for key in raw.mismatch_label_keys or () if (key, "NotIn") not in there]
    return _narrowed(_narrowed(selector, match, "In", labels), mismatch, "NotIn", labels)


def _narrowed(selector: LabelSelector, keys: Iterable[str], operator: str, labels: Labels) -> LabelSelector:
    """Return the selector with one more expression for each of the keys that the pod has a label of."""
    more = [LabelSelectorRequirement(key, operator, (labels[key],)) for key in keys if key in labels]
    return replace(selector, match_expressions=(*(selector.match_expressions or ()), *more))


def _term_problems(raw: _RawTerm, term: AffinityTerm) -> Iterator[Problem]:
    if not term.key:
        yield Problem(f"{raw.path}.topologyKey", "A term needs the key of a node label.")
    if raw.weight is not None and not 1 <= raw.weight <= MAX_WEIGHT:
        yield Problem(f"{raw.path}.weight", f"{raw.weight} is not between 1 and {MAX_WEIGHT}.")
    yield from term.labels.problems
    yield from term.namespace_labels.problems


def _spread(spec: PodSpec, labels: Labels, problems: list[Problem]) -> Iterator[SpreadConstraint]:
    for index, raw in enumerate(spec.topology_spread_constraints or ()):
        path = f"spec.topologySpreadConstraints[{index}]"
        selector = raw.label_selector
        if selector is not None:
            selector = _narrowed(selector, raw.match_label_keys or (), "In", labels)
        matcher = LabelMatcher.compile(selector, f"{path}.labelSelector")
        wrong = (*_spread_problems(raw, path), *matcher.problems)
        problems.extend(wrong)
        if not wrong:
            yield SpreadConstraint(
                key=raw.topology_key,
                max_skew=raw.max_skew,
                min_domains=1 if raw.min_domains is None else raw.min_domains,
                hard=raw.when_unsatisfiable == HARD,
                counted=LabelMatcher(matches_nothing=True) if matcher == MATCH_ALL else matcher,
                own=int(matcher.matches(labels)),
                honors_affinity=raw.node_affinity_policy in (None, HONOR),
                honors_taints=raw.node_taints_policy == HONOR,
            )


def _spread_problems(raw: TopologySpreadConstraint, path: str) -> Iterator[Problem]:
    if not raw.topology_key:
        yield Problem(f"{path}.topologyKey", "A constraint needs the key of a node label.")
    if not 1 <= raw.max_skew <= MAX_SKEW:
        yield Problem(f"{path}.maxSkew", f"{raw.max_skew} is not between 1 and {MAX_SKEW}.")
    if raw.when_unsatisfiable not in (HARD, SOFT):
        yield Problem(f"{path}.whenUnsatisfiable", f"{quote(raw.when_unsatisfiable)} is not {HARD} or {SOFT}.")
