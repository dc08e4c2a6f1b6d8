"""How a real node is set up: plain data, so it is looked at as such."""

import json
import tomllib
from pathlib import Path

import pytest

from cpg_lab import node_config, realnode
from cpg_lab.node_config import NodeFiles


def test_everything_is_in_the_nodes_own_folder(tmp_path: Path) -> None:
    """No path of the runtime or the kubelet leads out of the folder, so that nothing is left behind."""
    files = NodeFiles(tmp_path)
    runtime = tomllib.loads(node_config.runtime_config(files, "native"))
    kubelet = node_config.kubelet_config(files, "group")
    places = [runtime["root"], runtime["state"], runtime["grpc"]["address"], str(kubelet["podLogsDir"])]
    assert all(Path(place).is_relative_to(tmp_path) for place in places)
    assert kubelet["containerRuntimeEndpoint"] == f"unix://{runtime['grpc']['address']}"


def test_the_kubelet_listens_on_loopback_alone(tmp_path: Path) -> None:
    """Nobody outside can reach it, not even from the same machine: its loopback is its own."""
    kubelet = node_config.kubelet_config(NodeFiles(tmp_path), "group")
    assert (kubelet["address"], kubelet["healthzBindAddress"], kubelet["readOnlyPort"]) == ("127.0.0.1",) * 2 + (0,)


def test_the_network_is_a_list_of_plugins(tmp_path: Path) -> None:
    """The runtime finds a network, which is what makes the node ready."""
    files = NodeFiles(tmp_path)
    files.networks.mkdir()
    node_config.write_network(files)
    (found,) = files.networks.glob("*.conflist")
    assert json.loads(found.read_text())["plugins"] == [{"type": "loopback"}]


def test_what_is_missing_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot have a real node is told what to install."""
    monkeypatch.setattr("shutil.which", lambda name: None if name == "runc" else f"/bin/{name}")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert realnode.missing() == ["runc (Debian package runc)", "root"]
