"""The configuration of a real node, compared as data."""

import json
import tomllib
from pathlib import Path

import pytest

from cpg_lab import node_config, realnode
from cpg_lab.node_config import NodeFiles


def test_all_paths_are_in_the_folder_of_the_node(tmp_path: Path) -> None:
    """Runtime and kubelet write nowhere else, so that nothing is left behind."""
    files = NodeFiles(tmp_path)
    runtime = tomllib.loads(node_config.runtime_config(files, "native"))
    kubelet = node_config.kubelet_config(files, "group")
    places = [runtime["root"], runtime["state"], runtime["grpc"]["address"], str(kubelet["podLogsDir"])]
    assert all(Path(place).is_relative_to(tmp_path) for place in places)
    assert kubelet["containerRuntimeEndpoint"] == f"unix://{runtime['grpc']['address']}"


def test_the_kubelet_listens_on_loopback_only(tmp_path: Path) -> None:
    """Of its own network: no other process of the machine reaches it."""
    kubelet = node_config.kubelet_config(NodeFiles(tmp_path), "group")
    assert (kubelet["address"], kubelet["healthzBindAddress"], kubelet["readOnlyPort"]) == ("127.0.0.1",) * 2 + (0,)


def test_the_network_is_a_list_of_plugins(tmp_path: Path) -> None:
    """The runtime finds a network, which makes the node ready."""
    files = NodeFiles(tmp_path)
    files.networks.mkdir()
    node_config.write_network(files)
    (found,) = files.networks.glob("*.conflist")
    assert json.loads(found.read_text())["plugins"] == [{"type": "loopback"}]


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that users know what to install."""
    monkeypatch.setattr("shutil.which", lambda name: None if name == "runc" else f"/bin/{name}")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert realnode.missing() == ["runc (Debian package runc)", "root"]
