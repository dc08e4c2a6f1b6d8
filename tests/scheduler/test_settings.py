"""What may be set, and what is said about mistakes."""

from pathlib import Path

import pytest

from cpg_client.settings import SettingsError
from cpg_scheduler.queueing.policy import RequeueBackoff
from cpg_scheduler.settings import Settings, load, merged


def written(folder: Path, text: str) -> Path:
    """Return a file with that text."""
    path = folder / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_everything_has_a_default(tmp_path: Path) -> None:
    """Without a file, and with an empty one."""
    assert load(None) == load(written(tmp_path, "")) == load(written(tmp_path, "# nothing\n")) == Settings()


def test_what_is_set_is_used(tmp_path: Path) -> None:
    """In the names of the API: camel case, nested where it belongs together."""
    path = written(tmp_path, "schedulerName: mine\napi: crd\nbackoff: {most: 3.5}\nsearch: {budget: 7}\n")
    found = load(path)
    assert (found.scheduler_name, found.api, found.backoff) == ("mine", "crd", RequeueBackoff(most=3.5))
    assert (found.options().budget, found.options().detail) == (7, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("schedulerNmae: mine\n", ["schedulerNmae"]),
        ("api: both\n", ["api"]),
        ("bindsInFlight: many\n", ["bindsInFlight"]),
        ("bindsInFlight: 0\nsearch: {budget: -1}\nschedulerName: ''\nlisten: nowhere\n", ["bindsInFlight: must be at"]),
        ("volumeBindTimeout: 0\n", ["volumeBindTimeout: must be a number of seconds above zero"]),
        ("bindsInFlight: 0\nsearch: {budget: -1}\n", ["search.budget: must not be negative", "bindsInFlight"]),
        ("schedulerName: ''\n", ["schedulerName: must not be empty"]),
        ("namespaces: [a, B_b]\n", ["namespaces: 'B_b' cannot be the name of a namespace"]),
        ("listen: nowhere\n", ["listen: 'nowhere' is not host:port"]),
        ("a: [\n", ["settings.yaml"]),
        ("- a list\n", ["settings.yaml"]),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str, says: list[str]) -> None:
    """In one error, with the file, and all that is wrong."""
    with pytest.raises(SettingsError) as caught:
        load(written(tmp_path, text))
    assert all(word in str(caught.value) for word in says)
    assert "settings.yaml" in str(caught.value)


def test_a_file_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    """It was asked for by name."""
    with pytest.raises(SettingsError, match="absent"):
        load(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("listen", "expected"),
    [("", None), ("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:80", ("::1", 80)), (":80", ("", 80))],
)
def test_an_address_is_a_host_and_a_port(listen: str, expected: tuple[str, int] | None) -> None:
    """Or nothing."""
    assert Settings(listen=listen).address() == expected


def test_the_command_line_wins() -> None:
    """Where it says anything."""
    found = merged(Settings(api="crd"), api=None, scheduler_name="mine", leader_elect=False)
    assert (found.api, found.scheduler_name, found.leader_elect) == ("crd", "mine", False)


def test_the_lease_has_times() -> None:
    """Who leads gives up before another may begin."""
    lease = Settings().leader_election.lease_settings()
    assert lease.renew_deadline < lease.lease_duration
