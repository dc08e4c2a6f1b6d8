"""``what-if`` over a small cluster, before and after."""

from pathlib import Path

import pytest
from tests.cli.golden_files import assert_golden
from tests.cli.invoking import CommandRunner

from cpg_api.decoding import decode

CLUSTER = str(Path(__file__).parents[1] / "clusters" / "small.yaml")


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("without-node", ["train", "--without", "node/n11"], 1),
        ("add-nodes", ["late", "--add-nodes", "2 x gpu=8,rack=r2"], 0),
        ("priority", ["podgroup/late", "--priority", "1000"], 0),
        ("without-taint", ["late", "--without-taint", "maintenance", "--without", "n21"], 1),
        ("set", ["late", "--set", "late.minCount=1"], 0),
        ("cordon", ["--cordon", "n21"], 1),
        ("pod", ["pod/alone", "--priority", "5"], 0),
    ],
)
def test_the_difference_to_now(kubectl_cpg: CommandRunner, name: str, options: list[str], code: int) -> None:
    """Each change, with the exit code of the state after it."""
    found = kubectl_cpg("what-if", *options, "--cluster", CLUSTER)
    assert (found.code, found.err) == (code, "")
    assert_golden(f"what-if/{name}.txt", found.out)


def test_json_has_both_states_and_the_changed_groups(kubectl_cpg: CommandRunner) -> None:
    """The stable fields for scripts."""
    found = kubectl_cpg("what-if", "late", "--priority", "9", "--cluster", CLUSTER, "-o", "json")
    answer = decode(found.out)
    assert (answer["before"]["fits"], answer["after"]["fits"]) == (False, True)
    assert [one["after"]["name"] for one in answer["changed"]] == ["late"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ([], "what-if needs a change"),
        (["--priority", "1"], "--priority needs a TARGET"),
        (["late", "--without", "node/none"], "there is no node none"),
        (["late", "--without-taint", "none"], "no node has a taint none"),
        (["late", "--add-nodes", "gpu=8 x 2"], "does not begin with a number"),
        (["late", "--add-nodes", "2 x gpus=8"], "'gpus=8' is no resource or label of a node"),
        (["late", "--add-nodes", "2 x gpu=many"], "many"),
        (["nothing", "--cordon", "n21"], "nothing not found in namespace default"),
        (["late", "--set", "late.minGroupCount=1"], "late has no minGroupCount"),
    ],
)
def test_wrong_options_say_what_there_is(kubectl_cpg: CommandRunner, options: list[str], error: str) -> None:
    """The exit code is 2."""
    found = kubectl_cpg("what-if", *options, "--cluster", CLUSTER)
    assert found.code == 2
    assert error in found.err
