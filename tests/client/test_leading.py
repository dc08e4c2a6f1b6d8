"""What a process says of itself whether it leads or stands by."""

from types import SimpleNamespace
from typing import Any, cast

import structlog

from cpg_client.leading import METRICS, Shell, with_election
from cpg_client.leasing import Elector
from cpg_client.probing import Answer


def page(_: str) -> Answer:
    """Return a page of metrics."""
    return Answer(b"a_metric 1\n", content_type=METRICS)


def test_every_replica_tells_whether_it_leads() -> None:
    """Below its own metrics, if it has any; without an election there is nothing to tell."""
    shell: Shell[Any] = Shell(settings=SimpleNamespace(lease_name="mine"), log=structlog.get_logger(), identity="me")
    told = with_election(shell, page)
    assert told("") == page("")
    for leads in (False, True):
        shell.readiness.elector = cast("Elector", SimpleNamespace(leading=leads))
        *_, last = told("").body.decode().splitlines()
        assert last == f'leader_election_master_status{{name="mine"}} {leads:d}'
        assert told("").body.startswith(b"a_metric 1\n# HELP")
        assert told("").content_type == METRICS
