"""Container images written by hand follow the OCI format and are reproducible."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from cpg_lab import container_images


def packed(place: Path) -> dict[str, bytes]:
    """Return the files of an archive."""
    with tarfile.open(place) as archive:
        return {entry.name: source.read() for entry in archive if (source := archive.extractfile(entry))}


def written(folder: Path, name: str = "image.tar") -> Path:
    """Write an image of a program."""
    program = folder / "pause"
    program.write_bytes(b"#!")
    container_images.write_image(folder / name, name="localhost/pause:1", program=program, command=["/bin/pause"])
    return folder / name


def test_every_blob_matches_its_digest(tmp_path: Path) -> None:
    """From the index over the manifest to configuration and layer, digests and sizes match the bytes."""
    files = packed(written(tmp_path))
    (manifest,) = json.loads(files["index.json"])["manifests"]
    inner = json.loads(files[f"blobs/sha256/{manifest['digest'][7:]}"])
    for described in (manifest, inner["config"], *inner["layers"]):
        blob = files[f"blobs/sha256/{described['digest'][7:]}"]
        assert described["digest"] == f"sha256:{hashlib.sha256(blob).hexdigest()}"
        assert described["size"] == len(blob)
    assert manifest["annotations"]["io.containerd.image.name"] == "localhost/pause:1"


def test_the_layer_holds_the_program(tmp_path: Path) -> None:
    """The only layer has the only file, executable, and the configuration runs it without privileges."""
    files = packed(written(tmp_path))
    (manifest,) = json.loads(files["index.json"])["manifests"]
    inner = json.loads(files[f"blobs/sha256/{manifest['digest'][7:]}"])
    config = json.loads(files[f"blobs/sha256/{inner['config']['digest'][7:]}"])
    with tarfile.open(fileobj=io.BytesIO(files[f"blobs/sha256/{inner['layers'][0]['digest'][7:]}"])) as layer:
        assert [(entry.name, entry.mode) for entry in layer] == [("bin/pause", 0o755)]
    assert config["config"] == {"Entrypoint": ["/bin/pause"], "User": "65535:65535"}


def test_equal_programs_give_equal_archives(tmp_path: Path) -> None:
    """Nothing in an archive depends on the time of writing."""
    assert written(tmp_path).read_bytes() == written(tmp_path, "again.tar").read_bytes()
