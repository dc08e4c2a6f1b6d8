"""Which node has which images already, as one list of rows, images and sizes.

A node lists about fifty images, each under two names, so a large cluster has half a million entries. As three columns
they take six megabytes; as a mapping, ten times that. All nodes with an image are found in one pass over the list,
which is built on demand. Names that no node has any more are forgotten once they are more than half of all.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cpg_api.core.node import ContainerImage
from cpg_engine.cluster.axes import MAX_AMOUNT, Scores

MAX_STALE_NAMES = 1024
"""Names that no node has any more, beyond as many as there are others; they take a hundred bytes each."""

Found = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The codes of the images of one node, and their sizes."""


class Images:
    """The images of all nodes by row."""

    def __init__(self) -> None:
        """Start without images."""
        self._code_of: dict[str, int] = {}
        self._found: dict[int, Found] = {}
        self._list: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]] | None = None
        self._most_names = MAX_STALE_NAMES

    def put(self, row: int, images: Iterable[ContainerImage] | None) -> None:
        """Set the images of a node; of a name that occurs twice, the first entry counts."""
        sizes: dict[int, int] = {}
        for image in images or ():
            for name in image.names or ():
                code = self._code_of.setdefault(name, len(self._code_of))
                sizes.setdefault(code, min(max(image.size_bytes, 0), MAX_AMOUNT))
        if sizes:
            self._found[row] = (np.array(list(sizes), dtype=np.int32), np.array(list(sizes.values()), dtype=np.int64))
        elif self._found.pop(row, None) is None:
            return
        self._list = None
        if len(self._code_of) > self._most_names:
            self._drop_unused_names()

    def sizes(self, name: str, rows: int) -> Scores:
        """Return for each of ``rows`` rows how many bytes of an image its node has already."""
        answer = np.zeros(rows, dtype=np.int64)
        code = self._code_of.get(name)
        if code is not None:
            places, codes, sizes = self._listed()
            found = np.flatnonzero(codes == code)
            answer[places[found]] = sizes[found]
        return answer

    def _listed(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        if self._list is None:
            lengths = [len(codes) for codes, _ in self._found.values()]
            self._list = (
                np.repeat(np.array(list(self._found), dtype=np.int64), lengths),
                np.concatenate([np.zeros(0, dtype=np.int32), *(codes for codes, _ in self._found.values())]),
                np.concatenate([np.zeros(0, dtype=np.int64), *(sizes for _, sizes in self._found.values())]),
            )
        return self._list

    def _drop_unused_names(self) -> None:
        """Give new codes to the names that nodes have."""
        used = np.unique(self._listed()[1]).tolist()
        new_code = {code: number for number, code in enumerate(used)}
        self._code_of = {name: new_code[code] for name, code in self._code_of.items() if code in new_code}
        self._found = {
            row: (np.searchsorted(used, codes).astype(np.int32), sizes) for row, (codes, sizes) in self._found.items()
        }
        self._list = None
        self._most_names = 2 * len(used) + MAX_STALE_NAMES
