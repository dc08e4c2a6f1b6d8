"""The archives of the command line: which packages they contain, and that they can be built again."""

import hashlib
import re
import tarfile
from pathlib import Path

import release_cli

LOCK = (Path(__file__).parents[2] / "requirements" / "runtime.lock").read_text("utf-8")


def names(lock: str) -> set[str]:
    """Return the packages of a lock."""
    return set(re.findall(r"(?m)^([a-z0-9-]+)==", lock))


def test_a_lock_without_packages_keeps_all_others_with_their_hashes() -> None:
    """An entry takes its hashes with it."""
    kept = release_cli.without_packages(LOCK, ["kopf", "aiohttp"])
    assert names(LOCK) - names(kept) == {"kopf", "aiohttp"}
    assert kept.count("==") == len(re.findall(r"(?m)^\S+==", kept)) + kept.count("implementation_name ==")
    whole = release_cli.without_packages(LOCK, [])
    assert whole == LOCK


def test_every_package_that_is_left_out_is_in_the_lock() -> None:
    """A package that the lock has no more is not listed either."""
    assert set(release_cli.OF_THE_OPERATOR) <= names(LOCK)


def test_what_is_the_same_for_all_versions_of_python_is_packed_once(tmp_path: Path) -> None:
    """A package with one different file stays whole in both folders."""
    for version in ("cp311", "cp312"):
        for package, text in {"same": "a", "other": version}.items():
            (tmp_path / version / package).mkdir(parents=True)
            (tmp_path / version / package / "one.py").write_text("one")
            (tmp_path / version / package / "two.py").write_text(text)
    (tmp_path / "cp312" / "only.py").write_text("x")
    release_cli.move_common([tmp_path / "cp311", tmp_path / "cp312"], tmp_path / "common")
    assert {one.name for one in (tmp_path / "common").iterdir()} == {"same"}
    assert {one.name for one in (tmp_path / "cp311").iterdir()} == {"other"}
    assert {one.name for one in (tmp_path / "cp312").iterdir()} == {"other", "only.py"}


def test_the_same_contents_give_the_same_archive(tmp_path: Path) -> None:
    """Times and owners of files do not count; programs are executable."""
    sums = []
    archives = [tmp_path / f"{number}.tar.gz" for number in range(2)]
    for archive in archives:
        tree = archive.with_suffix(".tree")
        (tree / "lib").mkdir(parents=True)
        (tree / "kubectl-cpg").write_text("#!/bin/sh\n")
        (tree / "lib" / "one.py").write_text("1")
        release_cli.pack(tree, archive)
        sums.append(hashlib.sha256(archive.read_bytes()).hexdigest())
    assert sums[0] == sums[1]
    with tarfile.open(archives[0]) as packed:
        assert {one.name: one.mode for one in packed} == {"kubectl-cpg": 0o755, "lib/one.py": 0o644}
