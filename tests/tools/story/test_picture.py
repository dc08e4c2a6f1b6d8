"""The picture of a cluster state."""

from story.picture import draw, summarize
from story.state import ClusterState, Group, Node, Pod


def group(name: str, parent: str = "", *, priority: int = 0, scheduled: int = 0, domain: str = "") -> Group:
    """Return a group of two pods."""
    health = "MinimumMet" if scheduled else ""
    return Group(
        name=name, parent=parent, priority=priority, pods=2, scheduled=scheduled, health=health, domain=domain,
        reason="", message="",
    )  # fmt: skip


NODES = tuple(Node(f"node-{rack}-{number}", "block-1", f"rack-{rack}") for rack in ("1-1", "1-2") for number in (1, 2))
STATE = ClusterState(
    NODES,
    (Pod("a-0", "leaf", "node-1-1-1", ""), Pod("a-1", "leaf", "node-1-1-1", ""), Pod("b-0", "big", "", "no room")),
    (group("train", scheduled=2, domain="rack-1-1"), group("leaf", "train", scheduled=2), group("big", priority=9)),
)


def test_the_picture_shows_trees_above_racks() -> None:
    """Trees are ordered by priority, children are below their parents, and each pod is a letter in its node."""
    assert draw(STATE, coloured=False) == [
        "  big                            0/2 pods    Pending",
        "  train                          2/2 pods    MinimumMet  in rack-1-1",
        "  └── leaf                       2/2 pods    MinimumMet",
        "",
        "  block-1   rack-1-1   [tt][  ]",
        "            rack-1-2   [  ][  ]",
    ]


def test_each_tree_has_a_colour() -> None:
    """Names and letters of a tree have its colour, and the columns keep their width."""
    lines = draw(STATE, coloured=True)
    assert "\x1b[35mt\x1b[0m\x1b[35mt\x1b[0m" in lines[4]
    assert lines[0].startswith("  \x1b[36mbig ")


def test_the_summary_is_one_line() -> None:
    """It has the placed pods and the health of each tree, or the nodes if there are no trees."""
    assert summarize(STATE) == "train 2/2 pods placed, MinimumMet; big 0/1 pods placed, new"
    assert summarize(ClusterState(NODES)) == "4 nodes in racks"


def test_a_cycle_of_parents_is_not_drawn() -> None:
    """Groups without a root are left out, and the search for a root ends."""
    state = ClusterState((), (Pod("p", "a", "", ""),), (group("a", "b"), group("b", "a")))
    assert draw(state, coloured=False) == []
    assert state.root_of("a") in {"a", "b"}
