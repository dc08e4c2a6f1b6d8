"""What a person may choose, from the command line and from a file, with a clear word about every mistake."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct, field

from cpg_api.parsing import Rejected, convert_object
from cpg_client.flavours import Api
from cpg_client.leading import LeaderElection

LAST_PORT = 65535
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:]*):(\d{1,5})")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class SettingsError(ValueError):
    """Settings that cannot be used, with everything that is wrong with them."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Everything that can be set in the file; the command line wins over it. Times are in seconds."""

    api: Api = "auto"
    namespaces: tuple[str, ...] = ()
    """The namespaces to look after; none for all of them."""
    leader_elect: bool = True
    lease_namespace: str = "kube-system"
    lease_name: str = "cpg-operator"
    leader_election: LeaderElection = field(default_factory=LeaderElection)
    listen: str = "127.0.0.1:10271"
    """Where probes and metrics are served, as host:port; empty for nowhere."""
    writes_in_flight: int = 16
    quiet: float = 0.25
    """For how long a tree has to be quiet before it is looked at."""
    longest_delay: float = 1.0
    """After which a tree is looked at though it is not quiet."""
    sweep_period: float = 300.0
    """Between two comparisons of what is known with what is there."""
    partial_after: float = 600.0
    """For how long half a gang may hold nodes where its user wrote ``default``."""

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


def merged(settings: Settings, **given: object) -> Settings:
    """Return the settings with what the command line gives in their place."""
    chosen = {name: value for name, value in given.items() if value is not None}
    return _checked(msgspec.structs.replace(settings, **chosen))


def _checked(settings: Settings, place: str = "") -> Settings:
    wrong = list(_mistakes(settings))
    if wrong:
        raise SettingsError("\n".join(f"{place}{mistake}" for mistake in wrong))
    return settings


def _mistakes(settings: Settings) -> Iterator[str]:
    """Yield what types alone do not say."""
    for namespace in settings.namespaces:
        if not _NAMESPACE.fullmatch(namespace):
            yield f"namespaces: {namespace!r} cannot be the name of a namespace"
    address = _ADDRESS.fullmatch(settings.listen)
    if settings.listen and (address is None or int(address[2]) > LAST_PORT):
        yield f"listen: {settings.listen!r} is not host:port"
    if settings.writes_in_flight < 1:
        yield "writesInFlight: must be at least 1"
    for name, number in (("quiet", settings.quiet), ("partialAfter", settings.partial_after)):
        if not 0 <= number < math.inf:
            yield f"{name}: must be a number of seconds, not negative"
    if not settings.quiet <= settings.longest_delay < math.inf:
        yield "longestDelay: must be a number of seconds, not below quiet"
    if not 1 <= settings.sweep_period < math.inf:
        yield "sweepPeriod: must be at least 1 second"
    try:
        settings.leader_election.times()
    except ValueError as error:
        yield f"leaderElection: {error}"
