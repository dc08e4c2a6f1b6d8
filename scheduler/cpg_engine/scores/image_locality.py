"""Images that a node has already, as ImageLocality scores them.

One difference: where nodes report different sizes of one image, each counts with its own. kube-scheduler takes the size
that the first node reported for all of them, so that its scores depend on the order of the nodes.
"""

import numpy as np

from cpg_engine.cluster.axes import Rows, Scores
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass

MIN_THRESHOLD = 23 * 2**20
MAX_CONTAINER_THRESHOLD = 1000 * 2**20


def raw(pod_class: PodClass, cluster: NodeColumns, rows: Rows) -> Scores:
    """Score the bytes that need not be pulled, less for an image that few nodes have, so as not to crowd them."""
    total = np.zeros(len(rows), dtype=np.int64)
    nodes = max(len(cluster.row_of), 1)
    for image in pod_class.images:
        sizes = cluster.image_sizes(normalized_image_name(image))
        if number := int(np.count_nonzero(sizes)):
            total += (sizes[rows] * (number / nodes)).astype(np.int64)
    if not total.any():
        return total
    most = MAX_CONTAINER_THRESHOLD * max(len(pod_class.images), 1)
    return 100 * (total.clip(MIN_THRESHOLD, most) - MIN_THRESHOLD) // (most - MIN_THRESHOLD)


def normalized_image_name(image: str) -> str:
    """Return the name under which a node lists an image: without a tag or digest, ``latest`` is meant."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
