"""Which node has which images."""

from cpg_api.core.node import ContainerImage
from cpg_engine.cluster.axes import MAX_AMOUNT
from cpg_engine.cluster.images import Images


def image(*names: str, size: int = 100) -> ContainerImage:
    """Return an image under these names."""
    return ContainerImage(names=names, size_bytes=size)


def test_every_name_of_an_image_finds_it() -> None:
    """An image has a tag and a digest, and both have its size; an unknown name has none."""
    images = Images()
    images.put(1, (image("a:1", "a@sha256:0", size=7), image("b:1", size=8)))
    assert images.sizes("a:1", 3).tolist() == [0, 7, 0]
    assert images.sizes("a@sha256:0", 3).tolist() == [0, 7, 0]
    assert images.sizes("b:1", 2).tolist() == [0, 8]
    assert images.sizes("c:1", 2).tolist() == [0, 0]


def test_each_node_has_its_own_sizes() -> None:
    """The order in which nodes arrive does not matter."""
    images = Images()
    images.put(2, (image("a", size=5),))
    images.put(0, (image("b"), image("a", size=3)))
    assert images.sizes("a", 3).tolist() == [3, 0, 5]


def test_new_images_replace_the_old() -> None:
    """An image that a node no longer lists is gone."""
    images = Images()
    images.put(0, (image("a"),))
    assert images.sizes("a", 1).tolist() == [100]
    images.put(0, (image("b"),))
    assert images.sizes("a", 1).tolist() == [0]
    images.put(0, ())
    assert images.sizes("b", 1).tolist() == [0]


def test_a_node_without_images_changes_nothing() -> None:
    """No list, an empty one and an image without names are the same."""
    images = Images()
    images.put(0, None)
    images.put(0, (ContainerImage(size_bytes=4),))
    assert images.sizes("a", 1).tolist() == [0]


def test_the_first_of_two_entries_counts() -> None:
    """A name that a node lists twice has the size of the first entry."""
    images = Images()
    images.put(0, (image("a", size=1), image("a", size=2)))
    assert images.sizes("a", 1).tolist() == [1]


def test_absurd_sizes_are_bounded() -> None:
    """Negative sizes count as zero, and sizes stop at the largest amount."""
    images = Images()
    images.put(0, (image("a", size=-1), image("b", size=2**80)))
    assert images.sizes("a", 1).tolist() == [0]
    assert images.sizes("b", 1).tolist() == [MAX_AMOUNT]
