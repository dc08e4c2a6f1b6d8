"""Access to a cluster: address, authority, token and kubectl, independent of the process that started it."""

import base64
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from cpg_lab.errors import LabError

MAX_SECONDS_TO_SERVE = 120.0
"""Until all kinds of CRDs are served."""
SECONDS_BETWEEN_QUESTIONS = 0.2


@dataclass(frozen=True, kw_only=True)
class Access:
    """The address of an API server, its authority, and an administrator's token."""

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
        """Run the lab's own kubectl; with ``check``, raise with its error output when it fails."""
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

    def wait_for_crds(self) -> None:
        """Wait until all CRDs are served; kubectl fails on one that has no conditions yet, and is asked again."""
        wait = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        deadline = time.monotonic() + MAX_SECONDS_TO_SERVE
        while time.monotonic() < deadline:
            if not self.kubectl(*wait, check=False).returncode:
                return
            time.sleep(SECONDS_BETWEEN_QUESTIONS)
        self.kubectl(*wait)

    def token_for(self, service_account: str, namespace: str = "default") -> str:
        """Return a token of a service account, as its pods have."""
        return self.kubectl("create", "token", service_account, "--namespace", namespace).stdout.strip()


def write_kubeconfig(path: Path, *, url: str, ca_file: Path, token: str, name: str = "cpg-lab") -> None:
    """Write a kubeconfig that contains the authority, so that a copy of the file works anywhere."""
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
