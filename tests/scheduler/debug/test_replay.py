"""Replay: the command decides again from a dump, without a cluster."""

import json
from pathlib import Path
from typing import Any

import pytest

from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_scheduler import __main__
from cpg_scheduler.debug.dump import dump, encoded
from cpg_scheduler.debug.explain import Explainer
from cpg_scheduler.testing.stage import Stage

OPTIONS = SearchOptions()


@pytest.fixture
def stage() -> Stage:
    """Return trees and pods that fit, do not fit, wait for a group, or run."""
    stage = Stage(node("n1", cpu=4), composite("tree", gang=1), pod_group("leaf", gang=2, parent="tree"))
    stage.put(pod("a", group="leaf", cpu=3), pod("b", group="leaf", cpu=3), pod("fits", cpu=1))
    stage.put(pod("orphan", group="missing"), pod("runs", cpu=1, node_name="n1"), pod("urgent", cpu=4, priority=9))
    return stage


def dumped(stage: Stage, folder: Path) -> str:
    """Write the dump of a stage; return its path."""
    path = folder / "dump.json"
    found = dump(stage.cache, OPTIONS, stage.queue.positions(), taken=stage.now)
    path.write_bytes(b"".join(encoded(found)))
    return str(path)


def explained(stage: Stage, path: str) -> Any:  # noqa: ANN401 - JSON
    """Return the scheduler's own explanation."""
    explainer = Explainer(stage.cache, stage.queue, stage.preemption, options=OPTIONS, clock=lambda: stage.now)
    return json.loads(b"".join(explainer.page(path).chunks))


def replayed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    """Return the lines that the command prints."""
    assert __main__.main(["--replay", *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_all_pending_units_are_explained_as_by_the_scheduler(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In queue order, so the most important comes first; running pods are left out."""
    lines = replayed(capsys, dumped(stage, tmp_path))
    assert [line["root"] for line in lines] == [
        "Pod default/urgent",
        "PodGroup default/missing",
        "Pod default/fits",
        "CompositePodGroup default/tree",
    ]
    paths = ("pod/default/urgent", "pod/default/orphan", "pod/default/fits", "crd/default/tree")
    assert lines == [explained(stage, path) for path in paths]
    assert lines[2]["binds"] == {"default/fits": "n1"}
    assert [one["pods"] for one in lines[0]["preemption"]["evictions"]] == [["default/runs"]]


@pytest.mark.parametrize("root", ["default/tree", "default/leaf", "default/b"])
def test_one_tree_is_explained_by_any_part_of_it(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str], root: str
) -> None:
    """Its root, a group or a pod of it."""
    found = replayed(capsys, dumped(stage, tmp_path), "--root", root)
    assert found == [explained(stage, "crd/default/tree")]


def test_an_active_plan_is_active_in_the_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The objects have the nominations and the conditions of victims, and a terminating victim is waited for."""
    stage = Stage(node("n1", cpu=4), pod("runs", cpu=4, node_name="n1"), pod("urgent", cpu=4, priority=9))
    stage.victims_linger = True
    stage.run_passes()
    stage.evict()
    (found,) = replayed(capsys, dumped(stage, tmp_path))
    there, here = explained(stage, "pod/default/urgent")["preemption"], found["preemption"]
    assert [here[key] for key in ("underWay", "waitsFor", "nominated")] == [
        there[key] for key in ("underWay", "waitsFor", "nominated")
    ]
    assert (here["underWay"], here["waitsFor"]) == (True, ["default/runs"])


def test_a_terminating_pod_is_not_overdue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A replay starts as a new leader does, whatever the time of day is."""
    stage = Stage(node("n1", cpu=4), node("n2", cpu=4), pod("terminating", cpu=4, node_name="n1", priority=9))
    stage.put(pod("lesser", cpu=4, node_name="n2", priority=-9), pod("w", cpu=4))
    stage.mark_deleted(stage.pod("terminating"))
    (found,) = replayed(capsys, dumped(stage, tmp_path))
    assert found == explained(stage, "pod/default/w")
    assert (found["preemption"]["outcome"], found["preemption"]["evictions"]) == ("Planned", [])


def test_a_dump_without_pending_units_prints_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, so the output is empty."""
    assert __main__.main(["--replay", dumped(Stage(node("n1")), tmp_path)]) == 0
    assert capsys.readouterr() == ("", "cpg-scheduler: no pending units in this dump\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "No such file or directory"),
        ("{", "not a dump of a scheduler: Input data was truncated"),
        ("root: tree\n", "not a dump of a scheduler: JSON is malformed"),
        ("{}", "not a dump of a scheduler: Object missing required field `format`"),
        ('{"format": 9}', "not a dump of a scheduler: Object missing required field `schedulerName`"),
    ],
)
def test_a_file_that_is_no_dump_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    """One sentence says what is wrong with it, and the exit code is 1."""
    path = tmp_path / "file"
    if text:
        path.write_text(text, "utf-8")
    assert __main__.main(["--replay", str(path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"cpg-scheduler: {path}: {says}")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("root", "says"),
    [
        ("default/none", "no group or pod default/none in this dump"),
        ("tree", "'tree' is not NAMESPACE/NAME"),
        ("/tree", "'/tree' is not NAMESPACE/NAME"),
    ],
)
def test_an_unknown_root_is_an_error(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str], root: str, says: str
) -> None:
    """Nothing is printed."""
    assert __main__.main(["--replay", dumped(stage, tmp_path), "--root", root]) == 1
    assert capsys.readouterr() == ("", f"cpg-scheduler: {says}\n")


def test_a_root_without_a_dump_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """No cluster is asked."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(["--root", "default/tree"])
    assert (ended.value.code, "--replay" in capsys.readouterr().err) == (2, True)
