"""Write the image's bill of materials as CycloneDX: our wheels, Python, and the Debian packages of the base.

The base's Python runs it while the image is built: ``python3 sbom.py WHEELS VERSION``.
"""

import json
import platform
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from hashlib import sha256
from pathlib import Path

STATUS = Path("/var/lib/dpkg/status")


def main() -> None:
    """Write the bill of materials."""
    folder, version = sys.argv[1:]
    packages = STATUS.read_text("utf-8") if STATUS.exists() else ""
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": "kube-cpg", "version": version}},
        "components": [*wheels(Path(folder)), python(), *debian(packages)],
    }
    sys.stdout.write(json.dumps(bill, indent=2) + "\n")


def wheels(folder: Path) -> Iterator[dict[str, object]]:
    """Yield each wheel with name, version, licence and hash."""
    for wheel in sorted(folder.glob("*.whl")):
        if wheel.name.startswith("pip-"):
            continue
        with zipfile.ZipFile(wheel) as packed:
            path = next(name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
            metadata = Parser().parsestr(packed.read(path).decode("utf-8"), headersonly=True)
        name, version = str(metadata["Name"]), str(metadata["Version"])
        classified = [
            one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier", ()) if one.startswith("License")
        ]
        known = metadata["License-Expression"] or metadata["License"] or ", ".join(classified)
        licence = str(known or "unknown").partition("\n")[0]
        yield {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name.lower()}@{version}",
            "licenses": [{"license": {"name": licence}}],
            "hashes": [{"alg": "SHA-256", "content": sha256(wheel.read_bytes()).hexdigest()}],
        }


def python() -> dict[str, object]:
    """Return the Python of the image."""
    version = platform.python_version()
    return {"type": "application", "name": "python", "version": version, "purl": f"pkg:generic/python@{version}"}


def debian(status: str) -> Iterator[dict[str, object]]:
    """Yield each installed package of dpkg's status file."""
    for text in status.split("\n\n"):
        package = Parser().parsestr(text.lstrip(), headersonly=True)
        name, version = package["Package"], package["Version"]
        if name and str(package["Status"]).endswith(" installed"):
            purl = f"pkg:deb/debian/{name}@{version}?arch={package['Architecture']}"
            yield {"type": "library", "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    main()
