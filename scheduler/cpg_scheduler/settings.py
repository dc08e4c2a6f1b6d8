"""What a person may choose, from the command line and from a file, with a clear word about every mistake."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import yaml
from msgspec import Struct, field

from cpg_api.parsing import Rejected, convert_object
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.leasing import LeaseSettings
from cpg_engine.gangs.allocation import Options
from cpg_engine.weights import Weights
from cpg_scheduler.pending import Backoff

Api = Literal["auto", "crd", "native"]
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:]*):\d{1,5}")


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
    binds_in_flight: int = 256
    listen: str = "127.0.0.1:10270"
    """Where probes, metrics and explanations are served, as host:port; empty for nowhere."""
    backoff: Backoff = field(default_factory=Backoff)
    search: Search = field(default_factory=Search)
    weights: Weights = field(default_factory=Weights)

    def options(self) -> Options:
        """Return what the engine is told."""
        return Options(weights=self.weights, budget=self.search.budget, detail=True)

    def address(self) -> tuple[str, int] | None:
        """Return where to listen, or None."""
        host, _, port = self.listen.rpartition(":")
        return (host.strip("[]"), int(port)) if self.listen else None

    def lease(self) -> LeaseSettings:
        """Return the times of the leader election."""
        return LeaseSettings()


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
    wrong = list(_mistakes(found))
    if wrong:
        raise SettingsError("\n".join(f"{path}: {mistake}" for mistake in wrong))
    return found


def _mistakes(settings: Settings) -> Iterator[str]:
    """Yield what types alone do not say."""
    if settings.binds_in_flight < 1:
        yield "bindsInFlight: must be at least 1"
    if settings.search.budget < 0:
        yield "search.budget: must not be negative"
    if not settings.scheduler_name:
        yield "schedulerName: must not be empty"
    if settings.listen and not _ADDRESS.fullmatch(settings.listen):
        yield f"listen: {settings.listen!r} is not host:port"


def merged(settings: Settings, **given: object) -> Settings:
    """Return the settings with what the command line gives in their place."""
    return msgspec.structs.replace(settings, **{name: value for name, value in given.items() if value is not None})
