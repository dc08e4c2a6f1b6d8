"""Names of instantiated groups."""

import re

from hypothesis import given
from hypothesis import strategies as st

from cpg_api.schema import DNS_SUBDOMAIN
from cpg_operator.workloads.naming import ambiguous_templates, group_name


def test_a_name_is_workload_template_and_numbers() -> None:
    """Authors of pod templates know it in advance."""
    assert group_name("train", "root", ()) == "train-root"
    assert group_name("train", "workers", (1, 0)) == "train-workers-1-0"


def test_a_name_too_long_for_a_label_ends_with_a_hash() -> None:
    """63 characters fit; a longer name is cut, keeps its head, and stays different from others."""
    assert group_name("w" * 61, "t", ()) == "w" * 61 + "-t"
    one, two = (group_name("w" * 60, "template", (number,)) for number in (1, 2))
    assert one == "w" * 52 + "-68ef9d659f"
    assert one != two
    assert len(one) == len(two) == 63


def test_a_cut_does_not_end_in_a_separator() -> None:
    """The character before the hash is a letter or a digit."""
    assert group_name("w" * 50 + ".-x" + "y" * 60, "t", ()).startswith("w" * 50 + "-")


def test_templates_that_numbers_could_confuse_are_found() -> None:
    """A tail of numbers could: the numbered groups of the shorter name would look like those of the longer."""
    assert ambiguous_templates({"a", "a-0", "a-x", "a-0-7", "a1", "b"}) == {"a", "a-0"}
    assert group_name("w", "a", (0,), ambiguous=True) != group_name("w", "a-0", ())


NAMES = st.sets(st.sampled_from(["a", "a-0", "a-0-1", "a-1", "b", "b-0", "a-0-x"]), min_size=1)
NUMBERS = st.lists(st.integers(0, 2), max_size=3).map(tuple)


@given(names=NAMES, places=st.sets(NUMBERS, max_size=20), workload=st.sampled_from(["w", "w" * 60, "a.b"]))
def test_no_two_groups_of_a_workload_share_a_name(names: set[str], places: set[tuple[int, ...]], workload: str) -> None:
    """Whatever the names and numbers of the templates; and every name fits into a label."""
    ambiguous = ambiguous_templates(names)
    made = [
        group_name(workload, name, numbers, ambiguous=bool(numbers) and name in ambiguous)
        for name in names
        for numbers in places
    ]
    assert len(set(made)) == len(made)
    assert all(len(name) <= 63 and re.fullmatch(DNS_SUBDOMAIN, name) for name in made)
