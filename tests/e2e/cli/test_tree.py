"""``kubectl cpg tree`` on a real API server: trees as they are, and as they change."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpg_client.resources import CPG_POD_GROUPS

if TYPE_CHECKING:
    from tests.e2e.cli.conftest import Space

    from cpg_lab.blocking_client import BlockingClient
    from cpg_lab.clusters import Cluster

pytestmark = pytest.mark.e2e

PROGRAM = str(Path(sys.executable).with_name("kubectl-cpg"))


def rows(text: str) -> list[list[str]]:
    """Return the rows of a table without its header, without ages and the lines of the hierarchy."""
    return [[word for word in line.split() if word not in {"├─", "└─"}][:-1] for line in text.splitlines()[1:]]


def test_a_tree_is_shown(space_of: "Callable[[str], Space]") -> None:
    """With status, minimum and pods of each group; the mark is at the group that the last attempt failed at."""
    space = space_of("search-budget")
    space.wait(lambda: space.run("tree", "train").count("PlacementNotFound") == 7, "an attempt at the complete tree")
    found = rows(space.run("tree", "train"))
    assert found[0] == ["cpg/train", "PlacementNotFound", "6", "groups", "0/6", "0"]
    assert found[-1] == ["pg/train-5", "<-", "blocks", "PlacementNotFound", "1", "0/1", "0"]


def test_all_namespaces(space_of: "Callable[[str], Space]") -> None:
    """Each tree has its namespace."""
    spaces = [space_of("quorum"), space_of("spread")]
    text = spaces[0].run("tree", "-A")
    assert {space.name for space in spaces} <= {line.split()[0] for line in text.splitlines()[1:]}


def test_a_user_with_view_sees_trees(space_of: "Callable[[str], Space]") -> None:
    """No right on nodes is needed."""
    space = space_of("quorum")
    assert rows(space.run("tree", "--as", "viewer"))[0][0] == "pg/train"


def test_changes_are_shown(space_of: "Callable[[str], Space]", cluster: "Cluster", client: "BlockingClient") -> None:
    """Each change is printed as it happens, until the tree is placed."""
    space = space_of("quorum")
    space.wait(lambda: "WaitingForGroup" in space.run("tree"), "an attempt")
    command = [PROGRAM, "tree", "train", "-w", "--kubeconfig", str(cluster.kubeconfig), "-n", space.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:  # noqa: S603 - ours
        assert watching.stdout is not None
        shown = iter(watching.stdout.readline, "")
        assert any("pg/train" in line and "0/2" in line for line in shown)
        policy = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
        client.merge(CPG_POD_GROUPS.path(space.name, "train"), policy)
        assert any("Scheduled" in line and "2/2" in line for line in shown)
        watching.terminate()


def test_an_unknown_tree(cluster: "Cluster") -> None:
    """The error is two lines, the exit code that of wrong usage."""
    command = [PROGRAM, "tree", "nothing", "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    expected = "error: nothing is no tree of namespace default\nnext: see `kubectl cpg tree`\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
