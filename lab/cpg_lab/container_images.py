"""Container images made by hand: one file in one layer, as an archive that a container runtime imports.

The pod sandbox needs an image with a program that waits for ever, and there is no registry to pull it from.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def write_image(place: Path, *, name: str, program: Path, command: Sequence[str]) -> None:
    """Write an image with a statically linked program as its only file and the command as its entry point."""
    plain = _tar({f"bin/{program.name}": program.read_bytes()}, mode=0o755)
    layer = gzip.compress(plain, mtime=0)
    config = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": list(command), "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(plain)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(config, _CONFIG),
            "layers": [_descriptor(layer, _LAYER)],
        }
    )
    named = _descriptor(manifest, _MANIFEST) | {
        "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    }
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [named]}),
    }
    blobs = {f"blobs/sha256/{_digest(blob).partition(':')[2]}": blob for blob in (layer, config, manifest)}
    place.write_bytes(_tar(files | blobs, mode=0o644))


def _tar(files: dict[str, bytes], *, mode: int) -> bytes:
    """Pack files reproducibly: equal content gives equal bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _json(plain: dict[str, object]) -> bytes:
    return json.dumps(plain).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(blob: bytes, kind: str) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}
