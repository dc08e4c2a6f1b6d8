"""The hooks before a commit run the tools of this checkout."""

import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / ".pre-commit-config.yaml"
HOOKS = {"ruff-check", "ruff-format", "mypy", "import-contracts", "prose"}


def test_hooks_come_from_this_checkout() -> None:
    """The lock alone says which version of a tool is used, and a commit downloads nothing."""
    repositories = yaml.safe_load(FILE.read_text("utf-8"))["repos"]
    assert [one["repo"] for one in repositories] == ["local"]
    hooks = [hook for one in repositories for hook in one["hooks"]]
    assert {hook["id"] for hook in hooks} == HOOKS
    assert [hook["entry"] for hook in hooks if not hook["entry"].startswith(".venv/bin/")] == []


def test_the_configuration_is_valid() -> None:
    """By pre-commit's own schema."""
    command = [str(Path(sys.executable).with_name("pre-commit")), "validate-config", str(FILE)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own tool
    assert run.returncode == 0, run.stdout + run.stderr
