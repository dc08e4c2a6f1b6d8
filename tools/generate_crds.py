"""Generate the CustomResourceDefinitions from the structs of cpg_api; ``--check`` only compares."""

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cpg_api.scheduling.names import GROUP
from crds.kinds import KINDS

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "manifests" / "crds", ROOT / "charts" / "kube-cpg" / "files" / "crds")
"""Helm cannot read files outside the chart, so the chart has a copy."""

HEADER = "# Generated from the structs of cpg_api by `python tools/generate_crds.py`. Do not edit.\n"


class _Dumper(yaml.SafeDumper):
    """YAML without anchors for objects that occur twice."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def rendered() -> dict[Path, str]:
    """Return the expected content of every file."""
    texts = {f"{GROUP}_{kind.plural}.yaml": HEADER + _yaml(kind.manifest()) for kind in KINDS}
    return {folder / name: text for folder in FOLDERS for name, text in texts.items()}


def differences(expected: dict[Path, str]) -> Iterator[str]:
    """Yield the differences between current and expected files as unified diffs."""
    there = {path for folder in FOLDERS for path in folder.glob("*.yaml")}
    for path in sorted(expected.keys() | there):
        now = path.read_text() if path.exists() else ""
        yield from difflib.unified_diff(
            now.splitlines(keepends=True),
            expected.get(path, "").splitlines(keepends=True),
            fromfile=f"{path.relative_to(ROOT)} (as it is)",
            tofile=f"{path.relative_to(ROOT)} (as generated)",
        )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail and show what differs")
    expected = rendered()
    if parser.parse_args().check:
        difference = "".join(differences(expected))
        sys.stdout.write(difference)
        return 1 if difference else 0
    for path, text in expected.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


def _yaml(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


if __name__ == "__main__":
    sys.exit(main())
