"""The settings of a shell: from a file, then from the command line, with a clear word about every mistake.

What is set is the shell's own; how it is read, and what of it all shells have in common, stands here.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
import yaml

from cpg_api.parsing import Rejected, convert_object
from cpg_client.process import LeaderElectionSettings

MAX_PORT = 65535
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:]*):(\d{1,5})")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

S = TypeVar("S", bound=msgspec.Struct)
FindProblems = Callable[[S], Iterator[str]]
"""Yields what types alone do not say."""


class SettingsError(ValueError):
    """Settings that cannot be used, with everything that is wrong with them."""


class CommonSettings(Protocol):
    """What the settings of all shells have."""

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Where to work."""

    @property
    def listen(self) -> str:
        """Where probes are answered."""

    @property
    def leader_election(self) -> LeaderElectionSettings:
        """How the lease is kept."""


def read_settings(path: Path | None, kind: type[S], mistakes: FindProblems[S]) -> S:
    """Read a settings file; without one, everything is as by default."""
    if path is None:
        return kind()
    try:
        plain = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: {error}") from error
    found = convert_object(plain or {}, kind)
    if isinstance(found, Rejected):
        raise SettingsError("\n".join(f"{path}: {problem}" for problem in found.problems))
    return require_valid(found, mistakes, f"{path}: ")


def override(settings: S, mistakes: FindProblems[S], **given: object) -> S:
    """Return the settings with what the command line gives in their place."""
    chosen = {name: value for name, value in given.items() if value is not None}
    return require_valid(msgspec.structs.replace(settings, **chosen), mistakes)


def require_valid(settings: S, mistakes: FindProblems[S], place: str = "") -> S:
    """Return the settings, if nothing is wrong with them."""
    wrong = list(mistakes(settings))
    if wrong:
        raise SettingsError("\n".join(f"{place}{mistake}" for mistake in wrong))
    return settings


def parse_address(listen: str) -> tuple[str, int] | None:
    """Return where to listen, or None."""
    host, _, port = listen.rpartition(":")
    return (host.strip("[]"), int(port)) if listen else None


def address_problems(field: str, listen: str) -> Iterator[str]:
    """Say of a place to listen that it is none; an empty one is nowhere."""
    found = _ADDRESS.fullmatch(listen)
    if listen and (found is None or int(found[2]) > MAX_PORT):
        yield f"{field}: {listen!r} is not host:port"


def common_problems(settings: CommonSettings) -> Iterator[str]:
    """Say what is wrong with what all shells have in common."""
    wrong = [name for name in settings.namespaces if not _NAMESPACE.fullmatch(name)]
    yield from (f"namespaces: {name!r} cannot be the name of a namespace" for name in wrong)
    yield from address_problems("listen", settings.listen)
    try:
        settings.leader_election.lease_settings()
    except ValueError as error:
        yield f"leaderElection: {error}"
