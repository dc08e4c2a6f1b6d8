"""The settings, and the messages about mistakes in them."""

from pathlib import Path

import pytest

from cpg_client.settings import SettingsError
from cpg_operator.settings import Settings, load, merged


def written(folder: Path, text: str) -> Path:
    """Write a settings file."""
    path = folder / "settings.yaml"
    path.write_text(text)
    return path


def test_without_a_file_the_defaults_apply() -> None:
    """All namespaces, both flavours, one leader, probes on loopback."""
    found = load(None)
    assert found == Settings()
    assert found.address() == ("127.0.0.1", 10271)
    assert found.webhook.address() is None
    assert Settings(listen="").address() is None
    assert Settings(listen="[::1]:80").address() == ("::1", 80)


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    """An empty file is valid."""
    path = written(tmp_path, "namespaces: [a, b]\napi: crd\npartialAfter: 60\nleaderElection: {leaseDuration: 30}\n")
    found = merged(load(path), api="native", listen=None)
    assert (found.namespaces, found.api, found.partial_after) == (("a", "b"), "native", 60.0)
    assert found.leader_election.lease_settings().lease_duration == 30
    assert load(written(tmp_path, "")) == Settings()


def test_one_operator_may_serve_several_schedulers() -> None:
    """By default it serves ours alone."""
    assert Settings().scheduler_names() == {"cpg-scheduler"}
    assert Settings(scheduler_name="a", other_scheduler_names=("b",)).scheduler_names() == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("quiets: 1", "quiets"),
        ("api: other", "api"),
        ("quiet: -1", "quiet: must be a number of seconds, not negative"),
        ("partialAfter: .inf", "partialAfter: must be"),
        ("longestDelay: 0.1", "longestDelay: must be a number of seconds, not below quiet"),
        ("sweepPeriod: 0", "sweepPeriod: must be at least 1 second"),
        ("webhook: {listen: here}", "webhook.listen: 'here' is not host:port"),
        ("webhook: {listen: ':9443'}", "webhook.certificates: must be a folder"),
        ("schedulerName: ''", "schedulerName, otherSchedulerNames: no name may be empty"),
        ("otherSchedulerNames: ['']", "schedulerName, otherSchedulerNames: no name may be empty"),
        ("writesInFlight: 0", "writesInFlight: must be at least 1"),
        ("namespaces: [Default]", "'Default' cannot be the name of a namespace"),
        ("listen: here", "'here' is not host:port"),
        ("integrations: [job, daemonset]", "integrations[1]: "),
        ("integrations: [job, jobset, job]", "integrations: 'job' is there more than once"),
        ("customIntegrations: [{kind: Fleet}]", "customIntegrations[0]"),
        (
            "customIntegrations: [{group: g, version: v1, kind: Fleet, plural: fleets, template: a..b}]",
            "customIntegrations[0].template: 'a..b' is not a path",
        ),
        ("listen: 'x:99999'", "'x:99999' is not host:port"),
        ("leaderElection: {retryPeriod: 9}", "leaderElection: "),
        ("a: [", "settings.yaml"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    """With the file and the field."""
    path = written(tmp_path, text)
    with pytest.raises(SettingsError, match=r"settings\.yaml") as caught:
        load(path)
    assert complaint in str(caught.value)


def test_a_missing_file_is_a_mistake(tmp_path: Path) -> None:
    """The message names it."""
    with pytest.raises(SettingsError, match=r"gone\.yaml"):
        load(tmp_path / "gone.yaml")


def test_mistakes_on_the_command_line_are_named() -> None:
    """As mistakes in the file are."""
    with pytest.raises(SettingsError, match="listen: 'nowhere' is not host:port"):
        merged(Settings(), listen="nowhere")
