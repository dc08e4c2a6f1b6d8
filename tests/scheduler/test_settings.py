"""The settings, and the messages about invalid ones."""

from pathlib import Path

import pytest

from cpg_client.settings import SettingsError
from cpg_scheduler.queueing.policy import RequeueBackoff
from cpg_scheduler.settings import SchedulerSettings, load, merged


def written(folder: Path, text: str) -> Path:
    """Write a settings file."""
    path = folder / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_everything_has_a_default(tmp_path: Path) -> None:
    """They hold without a file and with an empty one."""
    assert load(None) == load(written(tmp_path, "")) == load(written(tmp_path, "# nothing\n")) == SchedulerSettings()


def test_settings_of_a_file_override_the_defaults(tmp_path: Path) -> None:
    """Their names are in camel case."""
    path = written(tmp_path, "schedulerName: mine\napi: crd\nbackoff: {most: 3.5}\nsearch: {budget: 7}\n")
    found = load(path)
    assert (found.scheduler_name, found.api, found.backoff) == ("mine", "crd", RequeueBackoff(most=3.5))
    assert (found.options().budget, found.options().detail) == (7, True)


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("schedulerNmae: mine\n", ["schedulerNmae"]),
        ("api: both\n", ["api"]),
        ("bindsInFlight: many\n", ["bindsInFlight"]),
        ("bindsInFlight: 0\nsearch: {budget: -1}\nschedulerName: ''\nlisten: nowhere\n", ["bindsInFlight: must be at"]),
        ("maxGracePeriod: -1\n", ["maxGracePeriod: must be a number of seconds, not negative"]),
        ("deviceBindTimeout: 0\n", ["deviceBindTimeout: must be a number of seconds above zero"]),
        ("volumeBindTimeout: 0\n", ["volumeBindTimeout: must be a number of seconds above zero"]),
        ("bindsInFlight: 0\nsearch: {budget: -1}\n", ["search.budget: must not be negative", "bindsInFlight"]),
        ("schedulerName: ''\n", ["schedulerName: must not be empty"]),
        ("namespaces: [a, B_b]\n", ["namespaces: 'B_b' cannot be the name of a namespace"]),
        ("integrations: [job, job]\n", ["integrations: 'job' is there more than once"]),
        (
            "integrations: [job]\ncustomIntegrations: [{group: g, version: v1, kind: Job, plural: js, template: t}]\n",
            ["customIntegrations[0]: 'Job' is the kind or the prefix", "'job' is the kind or the prefix"],
        ),
        ("listen: nowhere\n", ["listen: 'nowhere' is not host:port"]),
        ("a: [\n", ["settings.yaml"]),
        ("- a list\n", ["settings.yaml"]),
    ],
)
def test_an_invalid_file_is_reported_with_all_its_problems(tmp_path: Path, text: str, messages: list[str]) -> None:
    """In one error that names the file."""
    with pytest.raises(SettingsError) as caught:
        load(written(tmp_path, text))
    assert all(word in str(caught.value) for word in messages)
    assert "settings.yaml" in str(caught.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    """The defaults do not replace a file that was named."""
    with pytest.raises(SettingsError, match="absent"):
        load(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("listen", "expected"),
    [("", None), ("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:80", ("::1", 80)), (":80", ("", 80))],
)
def test_an_address_is_a_host_and_a_port(listen: str, expected: tuple[str, int] | None) -> None:
    """An empty one serves nothing."""
    assert SchedulerSettings(listen=listen).address() == expected


def test_options_override_the_file() -> None:
    """Options that are not given do not."""
    found = merged(SchedulerSettings(api="crd"), api=None, scheduler_name="mine", leader_elect=False)
    assert (found.api, found.scheduler_name, found.leader_elect) == ("crd", "mine", False)


def test_a_leader_gives_up_before_its_lease_ends() -> None:
    """So two replicas never lead at once."""
    lease = SchedulerSettings().leader_election.lease_settings()
    assert lease.renew_deadline < lease.lease_duration
