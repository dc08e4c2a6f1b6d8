"""``replay`` of a dump, and the scheduler's own replay of the same file."""

import gzip
from pathlib import Path

import pytest
from tests.cli.golden_files import assert_golden
from tests.cli.invoking import CommandRunner

from cpg_api.decoding import decode
from cpg_cli.cluster.sources import cluster_from_manifests
from cpg_scheduler.debug.dump import encoded
from cpg_scheduler.debug.replay import replay

CLUSTER = Path(__file__).parents[1] / "clusters" / "small.yaml"


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a compressed dump of the small cluster, in the working directory."""
    monkeypatch.chdir(tmp_path)
    found = cluster_from_manifests("small.yaml", CLUSTER.read_bytes(), scheduler_name="cpg-scheduler", now=0.0)
    Path("dump.json.gz").write_bytes(gzip.compress(b"".join(encoded(found))))
    return "dump.json.gz"


def test_all_that_waits_is_decided_again(kubectl_cpg: CommandRunner, dump: str) -> None:
    """In the order of the queue, as text."""
    found = kubectl_cpg("replay", dump)
    assert found.code == 1
    assert_golden("replay/all.txt", found.out)


def test_what_would_help_is_checked_for_one_tree(kubectl_cpg: CommandRunner, dump: str) -> None:
    """As in ``explain``."""
    found = kubectl_cpg("replay", dump, "late")
    assert found.code == 1
    assert_golden("replay/one.txt", found.out)


def test_a_smaller_minimum_is_placed(kubectl_cpg: CommandRunner, dump: str) -> None:
    """One tree, with a changed group."""
    found = kubectl_cpg("replay", dump, "late", "--set", "late.minCount=1")
    assert found.code == 0
    assert_golden("replay/smaller.txt", found.out)


def test_json_is_that_of_explain(kubectl_cpg: CommandRunner, dump: str) -> None:
    """Of each tree; ``cpg-scheduler --replay`` finds the same in the same file."""
    (answer,) = decode(kubectl_cpg("replay", dump, "-o", "json").out)
    (same,) = replay(Path(dump))
    assert answer["state"] == "Waiting"
    assert answer["message"] in same["messages"].values()  # type: ignore[attr-defined] # plain data
    assert answer["source"]["name"] == "dump"


def test_what_runs_does_not_wait(kubectl_cpg: CommandRunner, dump: str) -> None:
    """A tree that is placed."""
    found = kubectl_cpg("replay", dump, "train")
    assert found.code == 0
    assert found.out.startswith("train is placed: 4 pods on 2 nodes")


def test_a_simulation_starts_from_a_dump(kubectl_cpg: CommandRunner, dump: str, tmp_path: Path) -> None:
    """The cluster of ``simulate`` and ``what-if`` may be a dump."""
    file = tmp_path / "pod.yaml"
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {schedulerName: cpg-scheduler}\n"
    file.write_text(pod)
    answer = decode(kubectl_cpg("simulate", "-f", str(file), "--cluster", dump, "-o", "json").out)
    assert answer["singlePods"][0]["node"] == "n21"
    assert kubectl_cpg("what-if", "late", "--priority", "9", "--cluster", dump).code == 0


def test_no_dump_is_said(kubectl_cpg: CommandRunner, tmp_path: Path) -> None:
    """Another file, a damaged one, and none."""
    other, damaged = tmp_path / "other.json", tmp_path / "damaged.gz"
    other.write_text("{}")
    damaged.write_bytes(b"\x1f\x8bnothing")
    for file in (other, damaged, tmp_path / "none"):
        found = kubectl_cpg("replay", str(file))
        assert found.code == 2
        assert str(file) in found.err
