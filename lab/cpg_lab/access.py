"""How to reach a cluster: what a user of it needs, whoever started it."""

import base64
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

from cpg_lab.errors import LabError


@dataclass(frozen=True, kw_only=True)
class Access:
    """A way in: where the API server is, how to verify it, and who we are to it."""

    url: str
    ca_file: Path
    token: str
    kubeconfig: Path
    kubectl_path: Path

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002  # as subprocess.run has it
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run the lab's own kubectl; raise with its words when it fails, unless told not to."""
        done = subprocess.run(
            [self.kubectl_path, "--kubeconfig", self.kubeconfig, *arguments],
            input=input,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise LabError(f"kubectl {' '.join(arguments)} failed ({done.returncode}): {done.stderr.strip()}")
        return done

    def token_for(self, service_account: str, namespace: str = "default") -> str:
        """Give a token of a service account, as a pod of it would have."""
        return self.kubectl("create", "token", service_account, "--namespace", namespace).stdout.strip()


def write_kubeconfig(path: Path, *, url: str, ca_file: Path, token: str, name: str = "cpg-lab") -> None:
    """Write a kubeconfig with the authority inside, so that the file works wherever it is copied to."""
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
