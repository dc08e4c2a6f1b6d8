"""Images made by hand are what the standard says, and the same bytes each time."""

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


def made(folder: Path, name: str = "image.tar") -> Path:
    """Write an image of a program."""
    program = folder / "pause"
    program.write_bytes(b"#!")
    container_images.write_image(folder / name, name="localhost/pause:1", program=program, command=["/bin/pause"])
    return folder / name


def test_every_blob_is_where_its_digest_says(tmp_path: Path) -> None:
    """From the index over the manifest to configuration and layer, each digest and size is that of the bytes."""
    files = packed(made(tmp_path))
    (manifest,) = json.loads(files["index.json"])["manifests"]
    inner = json.loads(files[f"blobs/sha256/{manifest['digest'][7:]}"])
    for described in (manifest, inner["config"], *inner["layers"]):
        blob = files[f"blobs/sha256/{described['digest'][7:]}"]
        assert described["digest"] == f"sha256:{hashlib.sha256(blob).hexdigest()}"
        assert described["size"] == len(blob)
    assert manifest["annotations"]["io.containerd.image.name"] == "localhost/pause:1"


def test_the_layer_holds_the_program(tmp_path: Path) -> None:
    """The one layer has the one file, executable, and the configuration runs it as nobody."""
    files = packed(made(tmp_path))
    (manifest,) = json.loads(files["index.json"])["manifests"]
    inner = json.loads(files[f"blobs/sha256/{manifest['digest'][7:]}"])
    config = json.loads(files[f"blobs/sha256/{inner['config']['digest'][7:]}"])
    with tarfile.open(fileobj=io.BytesIO(files[f"blobs/sha256/{inner['layers'][0]['digest'][7:]}"])) as layer:
        assert [(entry.name, entry.mode) for entry in layer] == [("bin/pause", 0o755)]
    assert config["config"] == {"Entrypoint": ["/bin/pause"], "User": "65535:65535"}


def test_the_same_program_makes_the_same_bytes(tmp_path: Path) -> None:
    """Nothing in an archive depends on when it was made."""
    assert made(tmp_path).read_bytes() == made(tmp_path, "again.tar").read_bytes()
