"""Everything that can be set, on the command line or in a file; each mistake is reported by the name of its setting."""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, field

from cpg_api.integrations.custom import CustomKind
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integration
from cpg_api.scheduling.attempts import MAX_CLOSEST_DOMAINS
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.flavours import Api
from cpg_client.process import LeaderElectionSettings
from cpg_client.settings import MAX_PORT, common_problems, override, parse_address, read_settings
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.weights import Weights
from cpg_scheduler.cache.expected import EXPECTED_PODS_SECONDS
from cpg_scheduler.preemption.terminating import MAX_GRACE_PERIOD_SECONDS
from cpg_scheduler.queueing.policy import RequeueBackoff


class SearchSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The effort of the search."""

    budget: int = 100
    """How many alternatives are tried per tree before the search ends with `OutOfBudget`; the first try is free."""


class SchedulerSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Everything that can be set in the file; the command line overrides it. Times are in seconds."""

    scheduler_name: str = SCHEDULER_NAME
    """The schedulerName of the pods to schedule; other pods only take room."""
    api: Api = "auto"
    """Which groups are read: ours, the built-in ones of Kubernetes, or all that the cluster serves."""
    namespaces: tuple[str, ...] = ()
    """The namespaces in which pods are scheduled and evicted; none for all. Pods of all namespaces take room."""
    leader_elect: bool = True
    """Whether to work only while holding the lease."""
    lease_namespace: str = "kube-system"
    """The namespace of the lease."""
    lease_name: str = "cpg-scheduler"
    """The name of the lease; schedulers with different names need leases with different names."""
    leader_election: LeaderElectionSettings = field(default_factory=LeaderElectionSettings)
    binds_in_flight: int = 64
    """How many binds are in flight at once, each on a connection; a distant API server may need more."""
    volume_bind_timeout: float = 600.0
    """How long a batch of binds waits for its volumes before its unit is scheduled again."""
    device_bind_timeout: float = 600.0
    """How long a batch of binds waits for its devices before they are released and its unit is scheduled again."""
    max_grace_period: float = MAX_GRACE_PERIOD_SECONDS
    """How long a preemption waits for a pod with a longer grace period; 30 s later it may evict another one instead."""
    expected_pods_timeout: float = EXPECTED_PODS_SECONDS
    """How long room is reserved for expected pods, from when the first pod of their group has a node; 0 for never."""
    listen: str = "127.0.0.1:10270"
    """Where probes and metrics are served, as host:port; empty for nowhere."""
    debug_port: int = 10272
    """The port on 127.0.0.1 where the leader serves explanations and dumps; 0 for none."""
    integrations: tuple[Integration, ...] = DEFAULT_INTEGRATIONS
    """The kinds of owners whose pods get groups without naming any, the same ones in both processes."""
    custom_integrations: tuple[CustomKind, ...] = ()
    """Further kinds of owners, the same ones in both processes."""
    backoff: RequeueBackoff = field(default_factory=RequeueBackoff)
    search: SearchSettings = field(default_factory=SearchSettings)
    weights: Weights = field(default_factory=Weights)

    def options(self) -> SearchOptions:
        """Return the options of the engine; no more domains are examined than the status of a group shows."""
        return SearchOptions(
            weights=self.weights, budget=self.search.budget, detail=True, candidates=MAX_CLOSEST_DOMAINS
        )

    def address(self) -> tuple[str, int] | None:
        """Return where to listen, or None."""
        return parse_address(self.listen)


def load(path: Path | None) -> SchedulerSettings:
    """Read a settings file; without one, return the defaults."""
    return read_settings(path, SchedulerSettings, _problems)


def merged(settings: SchedulerSettings, **given: object) -> SchedulerSettings:
    """Return the settings with the values of the command line in their place."""
    return override(settings, _problems, **given)


def _problems(settings: SchedulerSettings) -> Iterator[str]:
    """Yield the problems that the types do not catch."""
    yield from common_problems(settings)
    if settings.binds_in_flight < 1:
        yield "bindsInFlight: must be at least 1"
    yield from _problems_of_times(settings)
    if not 0 <= settings.debug_port <= MAX_PORT:
        yield f"debugPort: must be a port, or 0, and not {settings.debug_port}"
    if settings.search.budget < 0:
        yield "search.budget: must not be negative"
    if not settings.scheduler_name:
        yield "schedulerName: must not be empty"
    for name, number in msgspec.to_builtins(settings.backoff).items():
        if not 0 <= number < math.inf:
            yield f"backoff.{name}: must be a number of seconds, not negative"


def _problems_of_times(settings: SchedulerSettings) -> Iterator[str]:
    for name, seconds in (
        ("volumeBindTimeout", settings.volume_bind_timeout),
        ("deviceBindTimeout", settings.device_bind_timeout),
    ):
        if not 0 < seconds < math.inf:
            yield f"{name}: must be a number of seconds above zero"
    for name, seconds in (
        ("maxGracePeriod", settings.max_grace_period),
        ("expectedPodsTimeout", settings.expected_pods_timeout),
    ):
        if not 0 <= seconds < math.inf:
            yield f"{name}: must be a number of seconds, not negative"
