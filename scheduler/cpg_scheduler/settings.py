"""What a person may choose, from the command line and from a file, with a clear word about every mistake."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct, field

from cpg_api.parsing import Rejected, convert_object
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.flavours import Api
from cpg_client.leading import LeaderElection
from cpg_engine.gangs.allocation import Options
from cpg_engine.weights import Weights
from cpg_scheduler.pending import Backoff

LAST_PORT = 65535
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:]*):(\d{1,5})")


class SettingsError(ValueError):
    """A settings file that cannot be used, with everything that is wrong in it."""


class Search(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How hard to look for a place."""

    budget: int = 100


class Settings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Everything that can be set in the file; the command line wins over it."""

    scheduler_name: str = SCHEDULER_NAME
    api: Api = "auto"
    leader_elect: bool = True
    lease_namespace: str = "kube-system"
    lease_name: str = "cpg-scheduler"
    leader_election: LeaderElection = field(default_factory=LeaderElection)
    binds_in_flight: int = 64
    """Each is a connection, whose handshake costs as much as six binds; an API server far away may want more."""
    volume_bind_timeout: float = 600.0
    """Seconds that the volumes of pods are given to be made and bound, before the pods are decided about anew."""
    listen: str = "127.0.0.1:10270"
    """Where probes, metrics and explanations are served, as host:port; empty for nowhere."""
    backoff: Backoff = field(default_factory=Backoff)
    search: Search = field(default_factory=Search)
    weights: Weights = field(default_factory=Weights)

    def options(self) -> Options:
        """Return what the engine is told; sentences name one domain, so no others are looked at."""
        return Options(weights=self.weights, budget=self.search.budget, detail=True, candidates=1)

    def address(self) -> tuple[str, int] | None:
        """Return where to listen, or None."""
        host, _, port = self.listen.rpartition(":")
        return (host.strip("[]"), int(port)) if self.listen else None


def load(path: Path | None) -> Settings:
    """Read a settings file; without one, everything is as by default."""
    if path is None:
        return Settings()
    try:
        plain = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: {error}") from error
    found = convert_object(plain or {}, Settings)
    if isinstance(found, Rejected):
        raise SettingsError("\n".join(f"{path}: {problem}" for problem in found.problems))
    return _checked(found, f"{path}: ")


def _checked(settings: Settings, place: str = "") -> Settings:
    wrong = list(_mistakes(settings))
    if wrong:
        raise SettingsError("\n".join(f"{place}{mistake}" for mistake in wrong))
    return settings


def _mistakes(settings: Settings) -> Iterator[str]:
    """Yield what types alone do not say."""
    if settings.binds_in_flight < 1:
        yield "bindsInFlight: must be at least 1"
    if not 0 < settings.volume_bind_timeout < math.inf:
        yield "volumeBindTimeout: must be a number of seconds above zero"
    if settings.search.budget < 0:
        yield "search.budget: must not be negative"
    if not settings.scheduler_name:
        yield "schedulerName: must not be empty"
    address = _ADDRESS.fullmatch(settings.listen)
    if settings.listen and (address is None or int(address[2]) > LAST_PORT):
        yield f"listen: {settings.listen!r} is not host:port"
    for name, number in msgspec.to_builtins(settings.backoff).items():
        if not 0 <= number < math.inf:
            yield f"backoff.{name}: must be a number of seconds, not negative"
    try:
        settings.leader_election.times()
    except ValueError as error:
        yield f"leaderElection: {error}"


def merged(settings: Settings, **given: object) -> Settings:
    """Return the settings with what the command line gives in their place."""
    chosen = {name: value for name, value in given.items() if value is not None}
    return _checked(msgspec.structs.replace(settings, **chosen))
