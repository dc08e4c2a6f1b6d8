"""The picture of a moment."""

from story.picture import drawing, summary
from story.sights import Group, Node, Pod, Sight


def group(name: str, parent: str = "", *, priority: int = 0, scheduled: int = 0, domain: str = "") -> Group:
    """Return a group of two pods."""
    health = "MinimumMet" if scheduled else ""
    return Group(
        name=name, parent=parent, priority=priority, pods=2, scheduled=scheduled, health=health, domain=domain,
        verdict="", message="",
    )  # fmt: skip


NODES = tuple(Node(f"node-{rack}-{number}", "block-1", f"rack-{rack}") for rack in ("1-1", "1-2") for number in (1, 2))
SIGHT = Sight(
    NODES,
    (Pod("a-0", "leaf", "node-1-1-1", ""), Pod("a-1", "leaf", "node-1-1-1", ""), Pod("b-0", "big", "", "no room")),
    (group("train", scheduled=2, domain="rack-1-1"), group("leaf", "train", scheduled=2), group("big", priority=9)),
)


def test_trees_stand_above_racks() -> None:
    """The more important tree comes first, children below their parents, and each pod is a letter in its node."""
    assert drawing(SIGHT, coloured=False) == [
        "  big                            0/2 pods    Pending",
        "  train                          2/2 pods    MinimumMet  in rack-1-1",
        "  └── leaf                       2/2 pods    MinimumMet",
        "",
        "  block-1   rack-1-1   [tt][  ]",
        "            rack-1-2   [  ][  ]",
    ]


def test_each_tree_has_a_colour() -> None:
    """Its letters and its names are told apart by it, and columns stay where they are."""
    lines = drawing(SIGHT, coloured=True)
    assert "\x1b[35mt\x1b[0m\x1b[35mt\x1b[0m" in lines[4]
    assert lines[0].startswith("  \x1b[36mbig ")


def test_one_line_says_the_same() -> None:
    """Where nothing can be redrawn, pods placed and health are told by tree; before there are trees, nodes."""
    assert summary(SIGHT) == "train 2/2 pods placed, MinimumMet; big 0/1 pods placed, new"
    assert summary(Sight(NODES)) == "4 nodes in racks"


def test_groups_that_are_each_others_parents_are_not_drawn_for_ever() -> None:
    """What has no root has no place in the picture, and looking for it ends."""
    sight = Sight((), (Pod("p", "a", "", ""),), (group("a", "b"), group("b", "a")))
    assert drawing(sight, coloured=False) == []
    assert sight.root_of("a") in {"a", "b"}
