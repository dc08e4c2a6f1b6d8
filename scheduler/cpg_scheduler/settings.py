"""What a person may choose, from the command line and from a file, with a clear word about every mistake."""

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
    backoff: Backoff = field(default_factory=Backoff)
    search: Search = field(default_factory=Search)
    weights: Weights = field(default_factory=Weights)

    def options(self) -> Options:
        """Return what the engine is told."""
        return Options(weights=self.weights, budget=self.search.budget, detail=True)

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
    wrong = [
        f"{path}: {name}: must be at least 1"
        for name, number in (("bindsInFlight", found.binds_in_flight), ("search.budget", found.search.budget + 1))
        if number < 1
    ]
    if wrong:
        raise SettingsError("\n".join(wrong))
    return found


def merged(settings: Settings, **given: object) -> Settings:
    """Return the settings with what the command line gives in their place."""
    return msgspec.structs.replace(settings, **{name: value for name, value in given.items() if value is not None})
