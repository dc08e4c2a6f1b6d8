"""Sources that are fetched and not built, by a fake Go."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cpg_lab import module_sources
from cpg_lab.errors import BuildError

GO = """
import json, os, sys
if sys.argv[1] == "env":
    print("go1.99.1", "linux", "amd64", "/modules", sep="\\n")
else:
    assert sys.argv[1:] == ["mod", "download", "-json", "x.dev/crds"]
    print(os.environ["FAKE_ANSWER"])
"""


@pytest.fixture
def answer(program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Put a Go on PATH with this answer."""
    monkeypatch.setenv("PATH", str(program("go", GO).parent))

    def given(plain: object) -> None:
        monkeypatch.setenv("FAKE_ANSWER", json.dumps(plain))

    return given


def test_the_folder_comes_from_go(answer: Callable[[object], None]) -> None:
    """Go has verified the hashes before it answers."""
    answer({"Path": "x.dev/crds", "Dir": "/modules/x.dev/crds@v1"})
    assert module_sources.fetch_module("prometheus-operator", "x.dev/crds") == Path("/modules/x.dev/crds@v1")


def test_a_failed_download_is_an_error(answer: Callable[[object], None]) -> None:
    """With the output of Go."""
    answer({"Path": "x.dev/crds", "Error": "checksum mismatch"})
    with pytest.raises(BuildError, match="checksum mismatch"):
        module_sources.fetch_module("prometheus-operator", "x.dev/crds")
