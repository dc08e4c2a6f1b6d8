"""A cluster's life around its components, without any real ones."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cpg_lab import building, folders, temporary_folders
from cpg_lab.clusters import Cluster
from cpg_lab.controlplane import ControlPlane
from cpg_lab.errors import LabError, StartError


@pytest.fixture
def place(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep clusters and kept logs in folders of this test, and build nothing."""
    assert not cache.exists()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(building, "ensure", lambda names, _: dict.fromkeys(names, Path("/bin/true")))
    return folders.temporary_clusters()


def left(place: Path) -> list[Path]:
    """Give the folders of clusters."""
    return [path for path in place.iterdir() if path.is_dir()]


def plain_start(plane: ControlPlane) -> None:
    """Start nothing, but look as if."""
    plane._ports["apiserver"] = 6443
    plane.files.logs.mkdir()
    (plane.files.logs / "etcd.log").write_text("hello")


def test_the_way_in_is_there_within_the_block(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the block there is a folder with certificates and an address; after it neither."""
    monkeypatch.setattr(ControlPlane, "start", plain_start)
    with Cluster() as cluster:
        assert cluster.url == "https://127.0.0.1:6443"
        assert cluster.ca_file.is_file()
        assert len(cluster.token) > 20
        assert left(place) == [cluster.kubeconfig.parent]
    assert left(place) == []
    with pytest.raises(StartError, match="does not run"):
        _ = cluster.processes
    cluster.stop()


def test_a_failing_start_leaves_logs_and_nothing_else(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a component does not start the folder goes, and the error says where the logs were put."""

    def fails(plane: ControlPlane) -> None:
        plain_start(plane)
        raise StartError("etcd died")

    monkeypatch.setattr(ControlPlane, "start", fails)
    with pytest.raises(StartError, match="etcd died") as caught:
        Cluster().start()
    assert left(place) == []
    (note,) = caught.value.__notes__
    assert Path(note.rpartition(" ")[2], "etcd.log").read_text() == "hello"


def test_an_interrupted_start_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while it starts leaves neither folder nor logs."""

    def interrupted(_: ControlPlane) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ControlPlane, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Cluster().start()
    assert left(place) == []
    assert not folders.kept_logs().exists()


def test_only_the_last_logs_are_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old logs make room for new ones, so that the cache does not grow for ever."""
    for number in range(30):
        (folders.kept_logs() / f"20200101-{number:06}-1").mkdir(parents=True)

    def fails(plane: ControlPlane) -> None:
        plain_start(plane)
        raise StartError("etcd died")

    monkeypatch.setattr(ControlPlane, "start", fails)
    with pytest.raises(StartError):
        Cluster().start()
    kept = sorted(path.name for path in folders.kept_logs().iterdir())
    assert len(kept) == 10
    assert kept[0] == "20200101-000021-1"
    assert left(place) == []


def test_a_given_folder_is_its_owners(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that was given is used, and is not removed."""
    monkeypatch.setattr(ControlPlane, "start", plain_start)
    with Cluster(folder=tmp_path / "mine") as cluster:
        assert cluster.kubeconfig.parent == tmp_path / "mine"
        assert left(place) == []
    assert (tmp_path / "mine" / "ca.crt").is_file()
    shutil.rmtree(tmp_path / "mine")
    assert temporary_folders.remove_orphans(place) == []


def test_waiting_says_what_did_not_come(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting ends when the condition holds, or with its name when it does not in time."""
    monkeypatch.setattr(ControlPlane, "start", plain_start)
    answers: Callable[[], bool] = iter([False, True]).__next__
    with Cluster() as cluster:
        cluster.wait(answers)
        with pytest.raises(LabError, match=r"the moon did not come within 0\.1 s"):
            cluster.wait(lambda: False, 0.1, "the moon")
    assert left(place) == []
