"""A dump decided again, by the command, with no cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_scheduler import __main__
from cpg_scheduler.debug.dump import dump, encoded
from cpg_scheduler.debug.explain import Explainer
from cpg_scheduler.testing.stage import DELETED, Stage

OPTIONS = SearchOptions()


@pytest.fixture
def stage() -> Stage:
    """Return trees and pods that fit, do not fit, wait for somebody, or run."""
    stage = Stage(node("n1", cpu=4), composite("tree", gang=1), pod_group("leaf", gang=2, parent="tree"))
    stage.put(pod("a", group="leaf", cpu=3), pod("b", group="leaf", cpu=3), pod("fits", cpu=1))
    stage.put(pod("orphan", group="nobody"), pod("runs", cpu=1, node_name="n1"), pod("urgent", cpu=4, priority=9))
    return stage


def dumped(stage: Stage, folder: Path) -> str:
    """Write the dump of a stage; return where it is."""
    path = folder / "dump.json"
    found = dump(stage.cache, OPTIONS, stage.queue.positions(), taken=DELETED.timestamp() + stage.now)
    path.write_bytes(b"".join(encoded(found)))
    return str(path)


def explained(stage: Stage, path: str) -> Any:  # noqa: ANN401 - JSON
    """Return what the scheduler itself answers."""
    explainer = Explainer(stage.cache, stage.queue, stage.preemption, options=OPTIONS, clock=lambda: stage.now)
    return json.loads(explainer.page(path).body)


def replayed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    """Return the lines that the command prints."""
    assert __main__.main(["--replay", *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_all_who_wait_are_explained_as_by_the_scheduler(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the queue: the most important first; who runs is left out."""
    lines = replayed(capsys, dumped(stage, tmp_path))
    assert [line["root"] for line in lines] == [
        "Pod default/urgent",
        "PodGroup default/nobody",
        "Pod default/fits",
        "CompositePodGroup default/tree",
    ]
    paths = ("pod/default/urgent", "pod/default/orphan", "pod/default/fits", "crd/default/tree")
    assert lines == [explained(stage, path) for path in paths]
    assert lines[2]["binds"] == {"default/fits": "n1"}
    assert [one["pods"] for one in lines[0]["preemption"]["evictions"]] == [["default/runs"]]


@pytest.mark.parametrize("root", ["default/tree", "default/leaf", "default/b"])
def test_one_tree_by_whatever_is_part_of_it(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str], root: str
) -> None:
    """Its root, a group or a pod of it: the explanation is that of the root."""
    told = replayed(capsys, dumped(stage, tmp_path), "--root", root)
    assert told == [explained(stage, "crd/default/tree")]


def test_a_plan_under_way_is_under_way_in_the_dump_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who was nominated and told to go stands in the objects, and a victim that takes its time is waited for."""
    stage = Stage(node("n1", cpu=4), pod("runs", cpu=4, node_name="n1"), pod("urgent", cpu=4, priority=9))
    stage.patient = True
    stage.cycles()
    stage.evict()
    (told,) = replayed(capsys, dumped(stage, tmp_path))
    there, here = explained(stage, "pod/default/urgent")["preemption"], told["preemption"]
    assert [here[key] for key in ("underWay", "waitsFor", "nominated")] == [
        there[key] for key in ("underWay", "waitsFor", "nominated")
    ]
    assert (here["underWay"], here["waitsFor"]) == (True, ["default/runs"])


def test_the_time_of_day_is_that_of_the_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who was leaving then is counted on, and not taken for somebody who should have ended long ago."""
    going = pod("going", cpu=4, node_name="n1", priority=9)
    metadata = replace(going.metadata, deletion_timestamp=DELETED.isoformat())
    lesser = pod("lesser", cpu=4, node_name="n2", priority=-9)
    stage = Stage(node("n1", cpu=4), node("n2", cpu=4), replace(going, metadata=metadata), lesser, pod("w", cpu=4))
    (told,) = replayed(capsys, dumped(stage, tmp_path))
    assert told == explained(stage, "pod/default/w")
    assert (told["preemption"]["outcome"], told["preemption"]["evictions"]) == ("Planned", [])


def test_nobody_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then there is no line, and a word to people."""
    assert __main__.main(["--replay", dumped(Stage(node("n1")), tmp_path)]) == 0
    assert capsys.readouterr() == ("", "cpg-scheduler: nobody waits in this dump\n")


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
def test_a_file_that_is_no_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str) -> None:
    """Is named in one sentence, with what is wrong with it, and the code is 1."""
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
def test_a_root_that_is_not_there(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str], root: str, says: str
) -> None:
    """Is said, and nothing is printed."""
    assert __main__.main(["--replay", dumped(stage, tmp_path), "--root", root]) == 1
    assert capsys.readouterr() == ("", f"cpg-scheduler: {says}\n")


def test_a_root_without_a_dump(capsys: pytest.CaptureFixture[str]) -> None:
    """Is a wrong command line: no cluster is asked."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(["--root", "default/tree"])
    assert (ended.value.code, "--replay" in capsys.readouterr().err) == (2, True)
