"""The manifest by which Krew installs the command line."""

from collections.abc import Iterator, Mapping
from typing import Any

DESCRIPTION = """\
Shows trees of gangs, explains why they wait and what would help, and tries workloads before they are submitted, with
the engine of the kube-cpg scheduler.
"""
CAVEATS = """\
It needs Python 3.11, 3.12, 3.13 or 3.14 on the PATH.
For the completion of `kubectl cpg`, run:
  kubectl cpg completion kubectl > DIRECTORY/kubectl_complete-cpg
  chmod +x DIRECTORY/kubectl_complete-cpg
with a DIRECTORY of your PATH.
"""


def krew_manifest(version: str, url: str, sums: Mapping[str, str]) -> dict[str, Any]:
    """Return the manifest for archives below a URL; ``sums`` has the SHA-256 of each platform's archive."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "cpg"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Explain and simulate trees of gangs",
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": list(_platforms(version, url, sums)),
        },
    }


def archive_name(version: str, platform: str) -> str:
    """Return the name of the archive of a platform such as ``linux-amd64``."""
    return f"kubectl-cpg_v{version}_{platform.replace('-', '_')}.tar.gz"


def _platforms(version: str, url: str, sums: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for platform, checksum in sums.items():
        system, _, machine = platform.partition("-")
        yield {
            "selector": {"matchLabels": {"os": system, "arch": machine}},
            "uri": f"{url}/{archive_name(version, platform)}",
            "sha256": checksum,
            "bin": "kubectl-cpg",
        }
