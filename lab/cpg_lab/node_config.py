"""The files of a real node, and the configuration of its kubelet and its container runtime."""

import json
from dataclasses import dataclass
from pathlib import Path

from cpg_lab.ports import LOOPBACK

SANDBOX_IMAGE = "localhost/cpg-lab-pause:1"

_RUNTIME = """\
version = 2
root = "{folder}/containerd"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[ttrpc]
  address = "{folder}/containerd.sock.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox}"
  # Without this every sandbox fails on machines that forbid lower scores of the out-of-memory killer.
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{folder}/net.d"
    conf_dir = "{folder}/net.d"
"""


@dataclass(frozen=True)
class NodeFiles:
    """The files of one real node, all in one folder."""

    folder: Path

    @property
    def socket(self) -> Path:
        """The socket of the container runtime."""
        return self.folder / "containerd.sock"

    @property
    def runtime_config(self) -> Path:
        """The container runtime's configuration."""
        return self.folder / "containerd.toml"

    @property
    def kubelet_config(self) -> Path:
        """The kubelet's configuration."""
        return self.folder / "kubelet.yaml"

    @property
    def kubeconfig(self) -> Path:
        """The kubelet's kubeconfig, for the API server's address inside the node's network."""
        return self.folder / "kubeconfig"

    @property
    def api_socket(self) -> Path:
        """The socket that relays connections from the node's network to the API server."""
        return self.folder / "apiserver.sock"

    @property
    def networks(self) -> Path:
        """The networks for pods; none is ever used."""
        return self.folder / "net.d"

    @property
    def pod_logs(self) -> Path:
        """The logs of containers."""
        return self.folder / "pods"

    @property
    def log(self) -> Path:
        """The log of the node's own processes."""
        return self.folder / "node.log"


def runtime_config(files: NodeFiles, snapshotter: str) -> str:
    """Return the container runtime's configuration."""
    return _RUNTIME.format(folder=files.folder, sandbox=SANDBOX_IMAGE, snapshotter=snapshotter)


def kubelet_config(files: NodeFiles, group: str) -> dict[str, object]:
    """Return the kubelet's configuration: on loopback only, with everything in the node's own folder."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": LOOPBACK,
        "port": 10250,
        "healthzBindAddress": LOOPBACK,
        "healthzPort": 10248,
        "readOnlyPort": 0,
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{files.socket}",
        "podLogsDir": str(files.pod_logs),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{group}",
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        # A busy or nearly full machine must not evict the pods of a test.
        "evictionHard": {"memory.available": "20Mi"},
        "imageGCHighThresholdPercent": 100,
        "registerNode": True,
        "nodeStatusUpdateFrequency": "2s",
    }


def write_network(files: NodeFiles) -> None:
    """Write the configuration of a network that no pod uses; without one the node is never ready."""
    plugins = [{"type": "loopback"}]
    described = {"cniVersion": "0.4.0", "name": "none", "plugins": plugins}
    (files.networks / "none.conflist").write_text(json.dumps(described))
