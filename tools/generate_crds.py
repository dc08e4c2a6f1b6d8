"""Write the CustomResourceDefinitions, or with ``--check`` tell whether they are what the model says."""

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cpg_api.scheduling.names import GROUP
from crds.kinds import KINDS

FOLDER = Path(__file__).parents[1] / "manifests" / "crds"
HEADER = "# Generated from the structs of cpg_api by `python tools/generate_crds.py`. Do not edit.\n"


class _Dumper(yaml.SafeDumper):
    """YAML as people write it: nothing is an anchor just because Python holds it twice."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def rendered() -> dict[Path, str]:
    """Return what every file ought to hold."""
    return {FOLDER / f"{GROUP}_{kind.plural}.yaml": HEADER + _yaml(kind.manifest()) for kind in KINDS}


def differences(expected: dict[Path, str]) -> Iterator[str]:
    """Yield, as unified diffs, how the files are not what they ought to be."""
    for path in sorted({*expected, *FOLDER.glob("*.yaml")}):
        now = path.read_text() if path.exists() else ""
        yield from difflib.unified_diff(
            now.splitlines(keepends=True),
            expected.get(path, "").splitlines(keepends=True),
            fromfile=f"{path.name} (as it is)",
            tofile=f"{path.name} (as generated)",
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
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in expected.items():
        path.write_text(text)
    return 0


def _yaml(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


if __name__ == "__main__":
    sys.exit(main())
