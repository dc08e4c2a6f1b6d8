"""Read the settings of a process: from a file, then from the command line, with every problem named.

Each process defines its own settings. This module reads them, and checks the settings that all processes share.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from cpg_api.integrations.custom import CustomKind, custom_problems
from cpg_api.integrations.registry import OWNERS
from cpg_api.parsing import Rejected, convert_object
from cpg_client.process import LeaderElectionSettings
from cpg_client.yaml_reader import YamlFileError, read_yaml

MAX_PORT = 65535
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:]*):(\d{1,5})")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

S = TypeVar("S", bound=msgspec.Struct)
FindProblems = Callable[[S], Iterator[str]]
"""Yields the problems that types alone do not catch."""


class SettingsError(ValueError):
    """Invalid settings, with all their problems."""


class CommonSettings(Protocol):
    """The settings that all processes share."""

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces to work in."""

    @property
    def listen(self) -> str:
        """The address of the probes."""

    @property
    def integrations(self) -> tuple[str, ...]:
        """The kinds whose pods get groups without naming any."""

    @property
    def custom_integrations(self) -> tuple[CustomKind, ...]:
        """Further kinds."""

    @property
    def leader_election(self) -> LeaderElectionSettings:
        """The times of the lease."""


def read_settings(path: Path | None, kind: type[S], find_problems: FindProblems[S]) -> S:
    """Read a settings file; without one, return the defaults."""
    if path is None:
        return kind()
    try:
        plain = read_yaml(path)
    except YamlFileError as error:
        raise SettingsError(f"{path}: {error}") from error
    found = convert_object(plain or {}, kind)
    if isinstance(found, Rejected):
        raise SettingsError("\n".join(f"{path}: {problem}" for problem in found.problems))
    return require_valid(found, find_problems, f"{path}: ")


def override(settings: S, find_problems: FindProblems[S], **given: object) -> S:
    """Return the settings with the values of the command line."""
    chosen = {name: value for name, value in given.items() if value is not None}
    return require_valid(msgspec.structs.replace(settings, **chosen), find_problems)


def require_valid(settings: S, find_problems: FindProblems[S], place: str = "") -> S:
    """Return the settings; raise ``SettingsError`` if they have problems."""
    problems = list(find_problems(settings))
    if problems:
        raise SettingsError("\n".join(f"{place}{problem}" for problem in problems))
    return settings


def parse_address(listen: str) -> tuple[str, int] | None:
    """Return host and port, or None for an empty address."""
    host, _, port = listen.rpartition(":")
    return (host.strip("[]"), int(port)) if listen else None


def address_problems(field: str, listen: str) -> Iterator[str]:
    """Yield a problem unless the address is ``host:port`` or empty."""
    found = _ADDRESS.fullmatch(listen)
    if listen and (found is None or int(found[2]) > MAX_PORT):
        yield f"{field}: {listen!r} is not host:port"


def common_problems(settings: CommonSettings) -> Iterator[str]:
    """Yield the problems of the shared settings."""
    problems = [name for name in settings.namespaces if not _NAMESPACE.fullmatch(name)]
    yield from (f"namespaces: {name!r} cannot be the name of a namespace" for name in problems)
    yield from address_problems("listen", settings.listen)
    repeated = (name for name, count in Counter(settings.integrations).items() if count > 1)
    yield from (f"integrations: {name!r} is there more than once" for name in repeated)
    yield from custom_problems(settings.custom_integrations, [OWNERS[name] for name in settings.integrations])
    try:
        settings.leader_election.lease_settings()
    except ValueError as error:
        yield f"leaderElection: {error}"
