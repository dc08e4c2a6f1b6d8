"""The operator under ``kopf run``."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
import yaml

from cpg_client.resources import CPG_POD_GROUPS, PODS
from cpg_lab.ports import LOOPBACK, free_port
from cpg_operator.kopf_cli import CONFIG_VARIABLE, settings_from_environment

if TYPE_CHECKING:
    from tests.operator.conftest import FakeApi

WAIT_SECONDS = 20.0


def test_settings_are_those_of_the_file_in_the_environment(tmp_path: Path) -> None:
    """Without one, the defaults apply."""
    path = tmp_path / "settings.yaml"
    path.write_text("{api: crd, namespaces: [a]}")
    found = settings_from_environment({CONFIG_VARIABLE: str(path)})
    assert (found.api, found.namespaces) == ("crd", ("a",))
    assert settings_from_environment({}).api == "auto"


@pytest.mark.parametrize("namespaces", [(), ("x", "y")])
def test_namespaces_are_those_of_kopfs_command_line(tmp_path: Path, namespaces: Sequence[str]) -> None:
    """They replace those of the file: Kopf watches its own."""
    path = tmp_path / "settings.yaml"
    path.write_text("namespaces: [a]")
    with click.Context(click.Command("run")) as context:
        context.params["namespaces"] = namespaces
        assert settings_from_environment({CONFIG_VARIABLE: str(path)}).namespaces == namespaces


@pytest.mark.parametrize(
    ("options", "pods"),
    [
        (["--all-namespaces"], PODS.path()),
        (["--namespace", "default"], PODS.path("default")),
    ],
)
async def test_kopf_runs_the_handlers(api: "FakeApi", tmp_path: Path, options: list[str], pods: str) -> None:
    """In the namespaces of its command line, until SIGTERM; then the lease is given back."""
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    (tmp_path / "settings.yaml").write_text(f"listen: '{LOOPBACK}:{free_port()}'")
    files = {"KUBECONFIG": str(tmp_path / "kubeconfig"), CONFIG_VARIABLE: str(tmp_path / "settings.yaml")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kopf", "run", "-m", "cpg_operator.handlers", *options),
        env={**os.environ, **files},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        api.create(CPG_POD_GROUPS, "a", {"schedulingPolicy": {"gang": {"minCount": 1}}})
        async with asyncio.timeout(WAIT_SECONDS):
            while "finalizers" not in api.objects[CPG_POD_GROUPS.path()].get("a", {}).get("metadata", {}):
                assert process.returncode is None
                await asyncio.sleep(0.05)
        assert ("GET", pods) in api.requests
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WAIT_SECONDS):
            output, _ = await process.communicate()
        assert (process.returncode, api.holder) == (0, ""), output.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
