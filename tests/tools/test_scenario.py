"""One scenario, played and explained on the screen."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import scenario

KNOWN = ["flat/gang-with-room", "flat/quorum", "trees/quorum-of-a-tree", "trees/gang"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("flat/quorum", "flat/quorum"),
        ("quorum", "flat/quorum"),
        ("with-room", "flat/gang-with-room"),
        ("tests/scenarios/trees/gang.yaml", "trees/gang"),
    ],
)
def test_a_name_is_a_path_or_a_part_of_one(name: str, expected: str) -> None:
    """A whole file name wins over a part of others."""
    assert scenario.resolve(name, KNOWN) == expected


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", ["needs the name", *KNOWN]),
        ("trees", ['"trees" is a part of 2 names', "trees/quorum-of-a-tree", "trees/gang"]),
        ("gang-with-rom", ['No scenario is called "gang-with-rom"', "similar names", "flat/gang-with-room"]),
        ("zzz", ["make scenario lists all names"]),
    ],
)
def test_a_name_that_leads_nowhere_is_answered_with_names(name: str, says: Sequence[str]) -> None:
    """All of them, the ones that are meant, or similar ones."""
    with pytest.raises(scenario.UnknownScenarioError) as caught:
        scenario.resolve(name, KNOWN)
    assert [part for part in says if part not in str(caught.value)] == []


def test_an_unknown_name_is_an_error_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and nothing on standard output."""
    assert scenario.main(["no-such-scenario-anywhere"]) == 2
    assert capsys.readouterr().out == ""


WRITTEN = """\
about: A gang takes the place of a pod of lower priority.
nodes: [n1 2]
groups: {pg: {gang: 2}, late: {gang: 1}, orphan: {parent: gone}}
pods: [{pod: low=1 on n1, priority: -5}, 2x1@pg, 1@orphan]
expect: {bound: {pg: 2}, victims: [low]}
steps:
  - about: Another gang comes.
    create: {pods: [3x1@late]}
    expect: {bound: {late: 3}}
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a scenario with a wrong expectation in its last step."""
    monkeypatch.setattr(scenario, "FOLDER", tmp_path)
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "wrong.yaml").write_text(WRITTEN, "utf-8")
    return "wrong"


def test_every_step_is_explained(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What happens, what is expected, what was decided and why, where the pods are, and what is not met."""
    assert scenario.main([written]) == 1
    output = capsys.readouterr().out
    assert output.startswith(
        "flat/wrong: A gang takes the place of a pod of lower priority.\n\nStep 0\n  nodes: [n1 2]\n"
    )
    for line in (
        "  expects victims: [low]",
        "  pg: preemption: Planned (units considered: 1)",
        "    evicts Pod default/low: PodGroup default/pg needs",
        "  pg: Placed",
        "    PodGroup default/pg: Success (minimum=2 scheduled=2",
        "  gone: held: missing",
        "  pods by node: {n1: [pg-1, pg-2], none: [orphan-1]}",
        "Step 1: Another gang comes.",
        "  late: Impossible",
        "0/1 nodes are available: 1 Insufficient cpu",
        "  NOT MET: bound: late",
        "Expectations that are not met: 1.",
    ):
        assert line in output


def test_a_scenario_of_ours_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    """As the tests play it."""
    assert scenario.main(["kep-6012/example"]) == 0
    assert capsys.readouterr().out.endswith("All expectations are met.\n")
