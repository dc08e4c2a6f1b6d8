"""Every scenario file, played and compared with its expectations."""

from pathlib import Path

import pytest
import yaml

from cpg_engine.testing.scenarios import play

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(HERE).with_suffix("")))
def test_scenario(file: Path, request: pytest.FixtureRequest) -> None:
    """What the file says holds; a file that names a defect fails until the defect is corrected and its name removed."""
    scenario = yaml.safe_load(file.read_text(encoding="utf-8"))
    if "defect" in scenario:
        request.applymarker(pytest.mark.xfail(reason=scenario["defect"], strict=True))
    assert play(scenario).complaints == ()
