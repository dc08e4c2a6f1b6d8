"""The manifest for Krew keeps Krew's rules."""

import re
from typing import Any

import pytest

from release.krew import archive_name, krew_manifest

SUMS = {"linux-amd64": "a" * 64, "darwin-arm64": "0" * 64}
SEMANTIC_VERSION = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")


def problems(manifest: dict[str, Any]) -> list[str]:
    """Return which rules of Krew a manifest breaks, by its own validation and that of its index."""
    spec = manifest["spec"]
    rules = {
        "apiVersion": manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2",
        "kind": manifest["kind"] == "Plugin",
        "name": re.fullmatch(r"[\w-]+", manifest["metadata"]["name"]) is not None,
        "version": SEMANTIC_VERSION.fullmatch(spec["version"]) is not None,
        "shortDescription": bool(spec["shortDescription"]) and "\n" not in spec["shortDescription"],
        "description": bool(spec["description"]),
        "platforms": bool(spec["platforms"]),
        "fields": spec.keys() <= {"version", "homepage", "shortDescription", "description", "caveats", "platforms"},
    }
    for platform in spec["platforms"]:
        labels = platform["selector"]["matchLabels"]
        rules |= {
            f"selector {labels}": labels.keys() == {"os", "arch"},
            f"uri {labels}": platform["uri"].startswith("https://") and platform["uri"].endswith(".tar.gz"),
            f"sha256 {labels}": re.fullmatch(r"[0-9a-f]{64}", platform["sha256"]) is not None,
            f"bin {labels}": bool(platform["bin"]) and not platform["bin"].startswith(("/", "..")),
            f"fields {labels}": platform.keys() <= {"selector", "uri", "sha256", "files", "bin"},
        }
    selectors = [tuple(sorted(one["selector"]["matchLabels"].items())) for one in spec["platforms"]]
    rules["overlap"] = len(selectors) == len(set(selectors))
    return [name for name, holds in rules.items() if not holds]


def test_the_manifest_keeps_the_rules() -> None:
    """Those of fields, checksums and selectors; each platform has its own archive."""
    manifest = krew_manifest("0.1.0", "https://releases.example/kube-cpg", SUMS)
    assert problems(manifest) == []
    found = {one["uri"]: one["sha256"] for one in manifest["spec"]["platforms"]}
    assert found == {
        f"https://releases.example/kube-cpg/{archive_name('0.1.0', platform)}": checksum
        for platform, checksum in SUMS.items()
    }
    assert manifest["spec"]["platforms"][1]["selector"]["matchLabels"] == {"os": "darwin", "arch": "arm64"}


@pytest.mark.parametrize(
    ("version", "sums", "broken"),
    [("1", SUMS, ["version"]), ("0.1.0", {}, ["platforms"]), ("0.1.0", {"linux-amd64": "x"}, ["sha256"])],
)
def test_the_rules_catch_mistakes(version: str, sums: dict[str, str], broken: list[str]) -> None:
    """So that the test above can fail."""
    found = problems(krew_manifest(version, "https://releases.example", sums))
    assert [one.partition(" ")[0] for one in found] == broken
