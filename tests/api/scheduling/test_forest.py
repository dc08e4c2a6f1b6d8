"""Trees from groups, in any order of arrival."""

from itertools import permutations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from cpg_api.scheduling.forest import Anchor, Forest, Group, GroupKey, Tree, key_of, parent_of
from cpg_engine.testing.builders import composite, metadata, pod_group

SMALL_TREE: list[Group] = [
    composite("root"),
    composite("left", parent="root"),
    pod_group("a", parent="left"),
    pod_group("b", parent="left"),
    pod_group("c", parent="root"),
]


def names(tree: Tree) -> list[str]:
    """Return the names of a tree's groups in order."""
    return [node.key.name for node in tree.nodes]


def test_every_order_of_arrival_gives_the_same_tree() -> None:
    """All 120 orders of five groups give one tree, parents first, siblings by name."""
    (tree,) = Forest.of(SMALL_TREE).trees()
    assert all(list(Forest.of(order).trees()) == [tree] for order in permutations(SMALL_TREE))
    assert (tree.anchor, names(tree)) == (Anchor.ROOT, ["root", "c", "left", "a", "b"])
    assert [node.depth for node in tree.nodes] == [1, 2, 2, 3, 3]
    assert [node.parent for node in tree.nodes] == [None, 0, 0, 2, 2]
    assert tree.nodes[0].children == (1, 2)


def test_a_flat_group_is_a_tree_of_its_own() -> None:
    """A PodGroup without a parent is a root."""
    (tree,) = Forest.of([pod_group("gang")]).trees()
    assert (tree.anchor, key_of(tree.root).name) == (Anchor.ROOT, "gang")


def test_groups_below_a_missing_ancestor_form_one_tree() -> None:
    """Its anchor is the missing ancestor."""
    (tree,) = Forest.of([*SMALL_TREE[1:]]).trees()
    assert (tree.anchor, str(tree.anchor_key)) == (Anchor.MISSING, "CompositePodGroup default/root")
    assert names(tree) == ["c", "left", "a", "b"]
    assert [node.depth for node in tree.nodes] == [1, 1, 2, 2]


def test_the_tree_of_a_missing_group_has_its_descendants() -> None:
    """Without descendants it is empty."""
    forest = Forest.of(SMALL_TREE[1:])
    assert names(forest.tree_of(GroupKey("CompositePodGroup", "default", "root"))) == ["c", "left", "a", "b"]
    assert names(forest.tree_of(GroupKey("PodGroup", "default", "absent"))) == []


def test_a_pod_group_is_never_a_parent() -> None:
    """The name of a parent means a CompositePodGroup, also where a PodGroup has that name."""
    trees = list(Forest.of([pod_group("twin"), pod_group("child", parent="twin")]).trees())
    assert [(tree.anchor, names(tree)) for tree in trees] == [
        (Anchor.MISSING, ["child"]),
        (Anchor.ROOT, ["twin"]),
    ]


def test_trees_do_not_cross_namespaces() -> None:
    """A parent in another namespace is no parent."""
    root = composite("root", meta=metadata("root", namespace="other"))
    anchors = [tree.anchor for tree in Forest.of((root, pod_group("leaf", parent="root"))).trees()]
    assert anchors == [Anchor.MISSING, Anchor.ROOT]


def test_a_cycle_and_the_groups_below_it_are_one_tree() -> None:
    """The cycle begins at its smallest key."""
    groups: list[Group] = [
        composite("b", parent="c"),
        composite("c", parent="a"),
        composite("a", parent="b"),
        pod_group("leaf", parent="c"),
    ]
    (tree,) = Forest.of(groups).trees()
    assert tree.anchor is Anchor.CYCLE
    assert [key.name for key in tree.cycle] == ["a", "b", "c"]
    assert names(tree) == ["a", "c", "b", "leaf"]
    assert Forest.of(groups).tree_of(key_of(groups[3])) == tree


def test_a_group_that_is_its_own_parent_is_a_cycle() -> None:
    """The shortest cycle has one group."""
    (tree,) = Forest.of([composite("self", parent="self")]).trees()
    assert (tree.anchor, names(tree), len(tree.cycle)) == (Anchor.CYCLE, ["self"], 1)


def test_siblings_are_ordered_by_age_then_name() -> None:
    """The older sibling is first; of two of one age, the smaller name."""
    children = [
        pod_group("young", parent="root", meta=metadata("young", created="2026-01-02T00:00:00Z")),
        pod_group("old-b", parent="root"),
        pod_group("old-a", parent="root"),
    ]
    (tree,) = Forest.of([composite("root"), *children]).trees()
    assert names(tree) == ["root", "old-a", "old-b", "young"]


def test_a_very_deep_tree_is_built() -> None:
    """Ten thousand levels do not exceed the recursion limit."""
    chain: list[Group] = [composite("0"), *(composite(str(i), parent=str(i - 1)) for i in range(1, 10_000))]
    (tree,) = Forest.of(chain).trees()
    assert tree.nodes[-1].depth == 10_000


LETTERS = "abcdefg"


@st.composite
def draw_groups(draw: st.DrawFn) -> list[Group]:
    """Draw groups with any parents: present, absent, themselves, in a cycle."""
    heap: list[Group] = []
    for name in draw(st.lists(st.sampled_from(LETTERS), unique=True)):
        parent = draw(st.none() | st.sampled_from(LETTERS))
        leaf = draw(st.booleans())
        heap.append(pod_group(name, parent=parent) if leaf else composite(name, parent=parent))
    return heap


def slow_anchor(group: Group, groups: dict[GroupKey, Group]) -> GroupKey:
    """Follow the parents step by step, with a list of all visited groups."""
    met = [key_of(group)]
    while True:
        parent = parent_of(groups[met[-1]])
        if parent is None:
            return met[-1]
        if parent not in groups:
            return parent
        if parent in met:
            return min(met[met.index(parent) :])
        met.append(parent)


@given(draw_groups(), st.randoms())
def test_any_groups_form_the_forest_of_the_slow_model(heap: list[Group], random: Random) -> None:
    """Every group is in exactly one tree, that of its anchor, in any order of arrival."""
    trees = list(Forest.of(heap).trees())
    shuffled = heap.copy()
    random.shuffle(shuffled)
    assert list(Forest.of(shuffled).trees()) == trees
    groups = {key_of(group): group for group in heap}
    where = {node.key: tree.anchor_key for tree in trees for node in tree.nodes}
    assert where == {key: slow_anchor(group, groups) for key, group in groups.items()}
    assert sum(len(tree.nodes) for tree in trees) == len(groups)
    for tree in trees:
        assert_well_formed(tree)
        assert all(Forest.of(heap).tree_of(node.key) == tree for node in tree.nodes)
        assert {Forest.of(heap).anchor_of(node.key) for node in tree.nodes} == {tree.anchor_key}


def assert_well_formed(tree: Tree) -> None:
    """Assert that relatives refer to each other, parents come first, and parents are the named ones."""
    for place, node in enumerate(tree.nodes):
        assert all(tree.nodes[child].parent == place for child in node.children)
        if node.parent is not None:
            assert node.parent < place
            assert place in tree.nodes[node.parent].children
            assert parent_of(node.group) == tree.nodes[node.parent].key
            assert node.depth == tree.nodes[node.parent].depth + 1
