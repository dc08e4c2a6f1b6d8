"""Images that a node has already, as ImageLocality scores them."""

import numpy as np

from cpg_engine.snapshot.axes import Rows, Scores
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.cluster import ClusterColumns

LEAST = 23 * 2**20
MOST_PER_CONTAINER = 1000 * 2**20


def raw(pod_class: PodClass, cluster: ClusterColumns, rows: Rows) -> Scores:
    """Score the bytes that need not be pulled, less for an image that few nodes have, so as not to crowd them."""
    total = np.zeros(len(rows), dtype=np.float64)
    nodes = max(len(cluster.row_of), 1)
    for image in pod_class.images:
        sizes = cluster.image_sizes(normalised(image))
        spread = int(np.count_nonzero(sizes)) / nodes
        total += sizes[rows] * spread
    most = MOST_PER_CONTAINER * max(len(pod_class.images), 1)
    bounded = np.clip(total, LEAST, most)
    return (100.0 * (bounded - LEAST) / (most - LEAST)).astype(np.int64)


def normalised(image: str) -> str:
    """Return the name under which a node lists an image: without a tag or digest, ``latest`` is meant."""
    return image if "@" in image or ":" in image.rsplit("/", 1)[-1] else f"{image}:latest"
