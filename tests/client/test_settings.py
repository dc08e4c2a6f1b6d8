"""The settings that all processes share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct, field

from cpg_api.integrations.custom import CustomKind
from cpg_client.process import LeaderElectionSettings
from cpg_client.settings import SettingsError, common_problems, override, parse_address, read_settings


class SomeSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Settings of a process."""

    namespaces: tuple[str, ...] = ()
    listen: str = "127.0.0.1:80"
    integrations: tuple[str, ...] = ()
    custom_integrations: tuple[CustomKind, ...] = ()
    leader_election: LeaderElectionSettings = field(default_factory=LeaderElectionSettings)


def some_problems(settings: SomeSettings) -> Iterator[str]:
    """Yield the problems of the shared settings."""
    yield from common_problems(settings)


def test_every_problem_is_named_with_its_file(tmp_path: Path) -> None:
    """All at once; those of the command line without a file."""
    path = tmp_path / "settings.yaml"
    path.write_text("namespaces: [A, b]\nlisten: here\nintegrations: [job, job]\nleaderElection: {retryPeriod: 99}\n")
    with pytest.raises(SettingsError) as caught:
        read_settings(path, SomeSettings, some_problems)
    assert [line.partition(": ")[2].partition(":")[0] for line in str(caught.value).splitlines()] == [
        "namespaces",
        "listen",
        "integrations",
        "leaderElection",
    ]
    with pytest.raises(SettingsError, match=r"^listen: ':' is not host:port$"):
        override(read_settings(None, SomeSettings, some_problems), some_problems, listen=":", namespaces=None)


def test_an_address_may_be_empty() -> None:
    """Or of either family."""
    assert [parse_address(text) for text in ("", ":80", "[::1]:80")] == [None, ("", 80), ("::1", 80)]
