"""Folders of the lab, as the environment says."""

from pathlib import Path

import pytest

from cpg_lab import folders
from cpg_lab.errors import LabError


def test_the_cache_is_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own variable has precedence, and the folder is created."""
    monkeypatch.setenv("KUBE_CPG_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folders.cache() == tmp_path / "mine"
    assert folders.cache().is_dir()


def test_the_cache_follows_the_desktop_convention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without our variable the cache is below XDG_CACHE_HOME."""
    monkeypatch.delenv("KUBE_CPG_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folders.cache() == tmp_path / "xdg" / "kube-cpg"


@pytest.mark.parametrize("given", ["", "relative"])
def test_the_cache_is_in_the_home_folder_otherwise(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty or relative XDG_CACHE_HOME counts as none, by its specification."""
    monkeypatch.delenv("KUBE_CPG_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folders.cache() == tmp_path / ".cache" / "kube-cpg"


def test_temporary_clusters_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this user can enter the folder, because it holds keys."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert folders.temporary_clusters().stat().st_mode & 0o777 == 0o700


def test_a_public_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that other users can enter, perhaps created by one of them, is not used."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folders.temporary_clusters().chmod(0o755)
    with pytest.raises(LabError, match="not a private folder"):
        folders.temporary_clusters()


def test_persistent_clusters_are_in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in .lab beside pyproject.toml, unless a variable says otherwise."""
    monkeypatch.delenv("KUBE_CPG_LAB", raising=False)
    assert folders.persistent_clusters().name == ".lab"
    assert (folders.persistent_clusters().parent / "pyproject.toml").is_file()
    monkeypatch.setenv("KUBE_CPG_LAB", "/somewhere/else")
    assert folders.persistent_clusters() == Path("/somewhere/else")


def test_an_unknown_module_is_an_error() -> None:
    """A missing module is reported with its path, before Go runs."""
    with pytest.raises(LabError, match=r"go/nothing has no go\.mod"):
        folders.module_folder("nothing")


def test_committed_files_are_there() -> None:
    """The files that the lab reads from the repository exist."""
    assert folders.stages_file().is_file()
    assert folders.toolchain_lock().is_file()
