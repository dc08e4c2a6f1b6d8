"""``top``, ``queue`` and ``doctor`` as text, on small clusters."""

import click
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from tests.cli.cluster_caches import BLOCK, RACK, facts_of, objects_of, ours, racks
from tests.cli.golden_files import assert_golden

from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import POD_GROUP_INITIALLY_SCHEDULED
from cpg_cli.cluster.facts import RIGHTS
from cpg_cli.cluster.objects import ClusterObjects
from cpg_cli.commands import doctor, pending_queue, top
from cpg_cli.failures import CommandError, ExitCode
from cpg_engine.testing.builders import composite, pod_group

WIDTH = 100


class RefusingLeader:
    """A leader that the user may not ask."""

    def __init__(self, _: object) -> None:
        """Take the server."""

    def get(self, path: str) -> bytes:
        """Refuse."""
        raise CommandError(f"no right to {path}", code=ExitCode.FORBIDDEN)


def cluster() -> ClusterObjects:
    """Return a cluster with a tree that waits, and pods that run."""
    message = "0/4 domains of topology.cpg.dev/rack have room for 5 pods (rack-1-2 is closest: 3 of 5). Next: add nodes"
    condition = Condition(type=POD_GROUP_INITIALLY_SCHEDULED, status="False", reason="Unschedulable", message=message)
    waiting = pod_group("large", gang=5, key=RACK, priority=3)
    waiting = replace(waiting, status=replace(waiting.status, conditions=(condition,)))
    groups: list[Group] = [waiting, composite("root", key=BLOCK), pod_group("small", parent="root", key=RACK)]
    pods = [ours(f"large-{number}", "large", gpu=4) for number in range(5)]
    pods += [ours(f"small-{number}", "small", gpu=1, node_name="n-1-1-1") for number in range(3)]
    return objects_of(racks(), groups, pods)


def written(command: click.Command, *arguments: str) -> str:
    """Return what a command writes to standard output, without blanks at the ends of lines."""
    done = CliRunner().invoke(command, ["-n", "default", *arguments], catch_exceptions=False, standalone_mode=False)
    text = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
    assert max(map(len, text.splitlines())) <= WIDTH
    return text


@pytest.fixture(autouse=True)
def _objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands list the cluster above, at a time long after it was made."""
    for module in (top, pending_queue):
        monkeypatch.setattr(module, "list_objects", lambda *_, **__: cluster())
    monkeypatch.setattr(pending_queue, "LeaderPages", RefusingLeader)
    monkeypatch.setattr("time.time", lambda: 1_767_312_000.0)


def test_top_shows_domains_inside_each_other() -> None:
    """Each with what is free of how much, and the pods that fit."""
    assert_golden("top/shape.txt", written(top.command, "--for", "gpu=4,cpu=2"))
    assert_golden("top/free.txt", written(top.command))


def test_the_queue_fits_a_terminal() -> None:
    """Each reason stands below its unit; ``-o wide`` adds which API the groups are of."""
    assert_golden("queue/short.txt", written(pending_queue.command))
    assert_golden("queue/wide.txt", written(pending_queue.command, "-o", "wide"))
    assert written(pending_queue.command, "-n", "other").startswith("nothing waits in namespace other\n")


def test_the_doctor_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below each finding that needs something."""
    facts = facts_of()
    facts.objects = cluster()
    facts.served, facts.server_version = {"native": {"podgroups"}}, "v1.37.1"
    facts.processes = {"scheduler": []}
    facts.missing_rights, facts.unread, facts.errors = (
        [RIGHTS[-1]],
        {"webhooks": "no", "nodes": "no"},
        {"x": "timed out"},
    )

    class Finder:
        def __init__(self, *_: object) -> None:
            """Have the facts."""

        def collect(self, _: object) -> object:
            """Return them."""
            return facts

    monkeypatch.setattr(doctor, "FactFinder", Finder)
    assert_golden("doctor/findings.txt", written(doctor.command))
    done = CliRunner().invoke(doctor.command, [], standalone_mode=False)
    assert done.return_value == ExitCode.NEGATIVE
