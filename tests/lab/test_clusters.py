"""The life of a cluster without real components."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cpg_lab import building, folders, temporary_folders
from cpg_lab.clusters import Cluster
from cpg_lab.controlplane import ControlPlane
from cpg_lab.errors import LabError, StartError


@pytest.fixture
def clusters_folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep clusters and logs in folders of this test, and build nothing."""
    assert not cache.exists()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(building, "ensure", lambda names, _: dict.fromkeys(names, Path("/bin/true")))
    return folders.temporary_clusters()


def leftovers(clusters_folder: Path) -> list[Path]:
    """Return the folders of clusters."""
    return [path for path in clusters_folder.iterdir() if path.is_dir()]


def fake_start(plane: ControlPlane) -> None:
    """Start no process, but set the URLs."""
    plane._ports["apiserver"] = 6443
    plane.files.logs.mkdir()
    (plane.files.logs / "etcd.log").write_text("hello")


def test_access_exists_within_the_block(clusters_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the block there is a folder with certificates and an address; after it neither."""
    monkeypatch.setattr(ControlPlane, "start", fake_start)
    with Cluster() as cluster:
        assert cluster.url == "https://127.0.0.1:6443"
        assert cluster.ca_file.is_file()
        assert len(cluster.token) > 20
        assert leftovers(clusters_folder) == [cluster.kubeconfig.parent]
    assert leftovers(clusters_folder) == []
    with pytest.raises(StartError, match="does not run"):
        _ = cluster.processes
    cluster.stop()


def test_a_failed_start_leaves_only_logs(clusters_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is removed, and the error names the copy of the logs."""

    def fails(plane: ControlPlane) -> None:
        fake_start(plane)
        raise StartError("etcd died")

    monkeypatch.setattr(ControlPlane, "start", fails)
    with pytest.raises(StartError, match="etcd died") as caught:
        Cluster().start()
    assert leftovers(clusters_folder) == []
    (note,) = caught.value.__notes__
    assert Path(note.rpartition(" ")[2], "etcd.log").read_text() == "hello"


def test_an_interrupted_start_leaves_nothing(clusters_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during the start leaves neither folder nor logs."""

    def interrupted(_: ControlPlane) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ControlPlane, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Cluster().start()
    assert leftovers(clusters_folder) == []
    assert not folders.kept_logs().exists()


def test_only_the_last_logs_are_kept(clusters_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old logs are removed, so that the cache does not grow for ever."""
    for number in range(30):
        (folders.kept_logs() / f"20200101-{number:06}-1").mkdir(parents=True)

    def fails(plane: ControlPlane) -> None:
        fake_start(plane)
        raise StartError("etcd died")

    monkeypatch.setattr(ControlPlane, "start", fails)
    with pytest.raises(StartError):
        Cluster().start()
    kept = sorted(path.name for path in folders.kept_logs().iterdir())
    assert len(kept) == 10
    assert kept[0] == "20200101-000021-1"
    assert leftovers(clusters_folder) == []


def test_a_given_folder_is_not_removed(clusters_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller owns it."""
    monkeypatch.setattr(ControlPlane, "start", fake_start)
    with Cluster(folder=tmp_path / "mine") as cluster:
        assert cluster.kubeconfig.parent == tmp_path / "mine"
        assert leftovers(clusters_folder) == []
    assert (tmp_path / "mine" / "ca.crt").is_file()
    shutil.rmtree(tmp_path / "mine")
    assert temporary_folders.remove_orphans(clusters_folder) == []


def test_waiting_names_the_condition_after_the_timeout(clusters_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It returns when the condition holds."""
    monkeypatch.setattr(ControlPlane, "start", fake_start)
    answers: Callable[[], bool] = iter([False, True]).__next__
    with Cluster() as cluster:
        cluster.wait(answers)
        with pytest.raises(LabError, match=r"the moon did not come within 0\.1 s"):
            cluster.wait(lambda: False, 0.1, "the moon")
    assert leftovers(clusters_folder) == []
