"""The packages of the image, whatever Python fetches them."""

from pathlib import Path

import pytest

import images

ROOT = Path(__file__).parents[2]
LOCK = """\
one==1.0 \\
    --hash=sha256:1
    # via me
old==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:2 \\
    --hash=sha256:3
new==3.0 ; python_full_version >= '3.12' \\
    --hash=sha256:4
never==4.0 ; platform_system == 'Windows' \\
    --hash=sha256:5
"""


@pytest.mark.parametrize(("python", "other"), [("3.11", "old==2.0"), ("3.13", "new==3.0")])
def test_a_lock_is_evaluated_for_the_python_of_the_image(python: str, other: str) -> None:
    """Its entries have hashes and no markers, which pip could evaluate otherwise."""
    lines = images.select_entries(LOCK, python).splitlines()
    assert [line.removesuffix(" \\") for line in lines if "==" in line] == ["one==1.0", other]
    assert not any(";" in line for line in lines)
    hashes = [line.strip(" \\").rpartition(":")[2] for line in lines if "--hash" in line]
    assert hashes == {"old==2.0": ["1", "2", "3"], "new==3.0": ["1", "4"]}[other]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_package_has_hashes_and_one_version(python: str) -> None:
    """Including pip."""
    text = "".join(images.select_entries(lock.read_text("utf-8"), python) for lock in images.LOCKS)
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    names = [line.partition("==")[0] for line in lines if not line.startswith(" ")]
    assert {"pip", "numpy", "typing-extensions"} - set(names) <= ({"typing-extensions"} if python == "3.13" else set())
    assert len(names) == len(set(names))
    starts = [number for number, line in enumerate(lines) if not line.startswith(" ")]
    assert all("--hash=sha256:" in lines[number + 1] for number in starts)


def test_the_time_of_an_image_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for any reproducible build; by default it is the time of the commit."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert images.creation_time() == "1970-01-02T00:00:00+00:00"
