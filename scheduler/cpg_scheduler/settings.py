"""What a person may choose, from the command line and from a file, with a clear word about every mistake."""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, field

from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.flavours import Api
from cpg_client.process import LeaderElectionSettings
from cpg_client.settings import common_problems, override, parse_address, read_settings
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.weights import Weights
from cpg_scheduler.queueing.policy import RequeueBackoff


class Search(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How hard to look for a place."""

    budget: int = 100
    """How many other ways are tried per tree before the search ends with `OutOfBudget`; what is placed at the first try
    costs none of it."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Everything that can be set in the file; the command line wins over it."""

    scheduler_name: str = SCHEDULER_NAME
    """The schedulerName of the pods to place; all others are only counted."""
    api: Api = "auto"
    """Which groups are read: ours, the built-in ones of Kubernetes, or whatever the cluster serves."""
    namespaces: tuple[str, ...] = ()
    """Whose pods are placed, or evicted for others; none for those of all. What takes room is counted everywhere."""
    leader_elect: bool = True
    """Whether to work only while holding the lease."""
    lease_namespace: str = "kube-system"
    """Where the lease is."""
    lease_name: str = "cpg-scheduler"
    """What it is called; schedulers of different names need leases of different names."""
    leader_election: LeaderElectionSettings = field(default_factory=LeaderElectionSettings)
    binds_in_flight: int = 64
    """Each is a connection, whose handshake costs as much as six binds; an API server far away may want more."""
    volume_bind_timeout: float = 600.0
    """Seconds that the volumes of pods are given to be made and bound, before the pods are decided about anew."""
    listen: str = "127.0.0.1:10270"
    """Where probes, metrics and explanations are served, as host:port; empty for nowhere."""
    backoff: RequeueBackoff = field(default_factory=RequeueBackoff)
    search: Search = field(default_factory=Search)
    weights: Weights = field(default_factory=Weights)

    def options(self) -> SearchOptions:
        """Return what the engine is told; sentences name one domain, so no others are looked at."""
        return SearchOptions(weights=self.weights, budget=self.search.budget, detail=True, candidates=1)

    def address(self) -> tuple[str, int] | None:
        """Return where to listen, or None."""
        return parse_address(self.listen)


def load(path: Path | None) -> Settings:
    """Read a settings file; without one, everything is as by default."""
    return read_settings(path, Settings, _mistakes)


def merged(settings: Settings, **given: object) -> Settings:
    """Return the settings with what the command line gives in their place."""
    return override(settings, _mistakes, **given)


def _mistakes(settings: Settings) -> Iterator[str]:
    """Yield what types alone do not say."""
    yield from common_problems(settings)
    if settings.binds_in_flight < 1:
        yield "bindsInFlight: must be at least 1"
    if not 0 < settings.volume_bind_timeout < math.inf:
        yield "volumeBindTimeout: must be a number of seconds above zero"
    if settings.search.budget < 0:
        yield "search.budget: must not be negative"
    if not settings.scheduler_name:
        yield "schedulerName: must not be empty"
    for name, number in msgspec.to_builtins(settings.backoff).items():
        if not 0 <= number < math.inf:
            yield f"backoff.{name}: must be a number of seconds, not negative"
