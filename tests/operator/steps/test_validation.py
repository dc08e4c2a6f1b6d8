"""The step that writes whether a tree is invalid, or was placed."""

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.health import HEALTHY
from cpg_api.scheduling.statuses import pending_status
from cpg_api.validity import initially_scheduled_type
from cpg_client.flavours import CRD, NATIVE
from cpg_engine.testing.builders import composite, pod, pod_group
from cpg_operator.steps.validation import CONFIRMATION_SECONDS, _event, validate
from cpg_operator.testing.fixtures import TIMESTAMP, ViewFixture, members, small_tree
from cpg_operator.tree_states import TreeStates
from cpg_operator.writes import NOTHING, REMEMBERED_SECONDS, VALIDATION_MANAGER, Verb, Write


@pytest.fixture
def fixture() -> ViewFixture:
    """Return an empty view."""
    return ViewFixture()


def condition_of(write: Write) -> Condition:
    """Return the one condition that is written."""
    (found,) = write.body["conditions"]
    assert isinstance(found, Condition)
    return found


def with_conditions(group: Group, *conditions: tuple[str, str, str, str]) -> Group:
    """Return a newer version of a group with these conditions: type, status, reason, transition time."""
    found = tuple(
        Condition(type=kind, status=status, reason=reason, message="m", last_transition_time=since)
        for kind, status, reason, since in conditions
    )
    metadata = replace(group.metadata, resource_version="2")
    return replace(group, metadata=metadata, status=replace(group.status, conditions=found))


def test_a_valid_tree_that_waits_is_left_to_the_scheduler(fixture: ViewFixture) -> None:
    """Nothing is written."""
    fixture.put(*small_tree())
    assert validate(fixture.context()) == NOTHING


def test_every_group_of_an_invalid_tree_gets_the_condition(fixture: ViewFixture) -> None:
    """By the manager of this condition, over the version that was seen, with one event each."""
    fixture.put(*small_tree(), pod_group("bad", parent="root", workload="v"))
    writes = validate(fixture.context()).writes
    assert [one.target.name for one in writes] == ["root", "a", "b", "bad"]
    for one in writes:
        assert (one.manager, one.unchanged, condition_of(one).last_transition_time) == (
            VALIDATION_MANAGER,
            True,
            TIMESTAMP,
        )
        assert one.event is not None
        assert (one.event.reason, one.event.warning, one.event.note) == ("Invalid", True, condition_of(one).message)


def test_one_fault_gets_one_event() -> None:
    """However many pods have it, and whichever the message names; another fault gets another event."""
    root = composite("root")
    pattern = "Pod default/{} of PodGroup default/a has priority {}, but its tree has 7 (and {} more problem{})"
    before, after = pattern.format("a-xyz", 5, 1, ""), pattern.format("b-uvw", 6, 40, "s")
    for message, has_event in ((after, False), ("a cycle", True)):
        found = Condition(type=initially_scheduled_type(root), status="False", reason="Invalid", message=before)
        event = _event(replace(root, status=replace(root.status, conditions=(found,))), replace(found, message=message))
        assert (event is not None) is has_event


def test_the_condition_is_withdrawn_when_the_tree_is_corrected(fixture: ViewFixture) -> None:
    """With an event that repeats what was wrong."""
    root = composite("root")
    fixture.put(with_conditions(root, (initially_scheduled_type(root), "False", "Invalid", TIMESTAMP)))
    (write,) = validate(fixture.context()).writes
    assert (condition_of(write).status, condition_of(write).reason) == ("Unknown", "Pending")
    assert write.event is not None
    assert (write.event.reason, write.event.note, write.event.warning) == ("Valid", "no longer invalid: m", False)


def put_complete_tree(fixture: ViewFixture, healthy_since: str | None) -> None:
    """Put a tree with running pods into the view; its root may be healthy since some time."""
    root, *leaves = small_tree()
    fixture.put(
        root if healthy_since is None else with_conditions(root, (HEALTHY, "True", "MinimumMet", healthy_since)),
        *leaves,
    )
    fixture.add_pods(*members("a", 2), *members("b", 2))


@pytest.mark.parametrize(
    ("since", "left"),
    [
        (None, CONFIRMATION_SECONDS),
        (TIMESTAMP, CONFIRMATION_SECONDS),
        ("1970-01-12T13:46:37Z", CONFIRMATION_SECONDS - 3),
    ],
)
def test_the_scheduler_has_time_to_report_that_a_tree_was_placed(
    fixture: ViewFixture, since: str | None, left: float
) -> None:
    """Counted from when the root became healthy."""
    put_complete_tree(fixture, since)
    result = validate(fixture.context())
    assert result.writes == ()
    assert result.requeue_after == pytest.approx(left)


def test_after_that_the_operator_reports_it(fixture: ViewFixture) -> None:
    """For all groups that have their minimum, without an event; where the root is not healthy, for none."""
    put_complete_tree(fixture, "1970-01-12T13:46:30Z")
    writes = validate(fixture.context()).writes
    assert [one.target.name for one in writes] == ["root", "a", "b"]
    assert {(condition_of(one).status, condition_of(one).reason, one.event) for one in writes} == {
        ("True", "Scheduled", None)
    }
    fixture.remove_pods(*members("b", 2))
    assert validate(fixture.context()) == NOTHING


def test_a_reported_placement_is_not_reported_again(fixture: ViewFixture) -> None:
    """A tree that has run for a month causes no write."""
    root, *leaves = small_tree()
    done = [
        with_conditions(one, (initially_scheduled_type(one), "True", "Scheduled", TIMESTAMP)) for one in (root, *leaves)
    ]
    fixture.put(*done)
    fixture.add_pods(*members("a", 2), *members("b", 2))
    assert validate(fixture.context()) == NOTHING


def test_a_leaf_that_is_not_placed_gets_no_condition(fixture: ViewFixture) -> None:
    """Where the minimum of the root does not need it."""
    root = composite("root", gang=1)
    fixture.put(with_conditions(root, (HEALTHY, "True", "MinimumMet", "1970-01-12T13:46:30Z")))
    fixture.put(*(pod_group(name, gang=2, parent="root") for name in "ab"))
    fixture.add_pods(*members("a", 2))
    assert [one.target.name for one in validate(fixture.context()).writes] == ["root", "a"]


def foreign(*pods: Pod) -> list[Pod]:
    """Return the pods with the name of another scheduler."""
    return [replace(one, spec=replace(one.spec, scheduler_name="other")) for one in pods]


BAD = pod_group("bad", parent="root", workload="v")
NATIVE_STATUS = (("Custom", "True", "Ours", TIMESTAMP),)


def test_a_foreign_tree_gets_no_condition(fixture: ViewFixture) -> None:
    """Neither Invalid nor the confirmation of its placement, of which its own scheduler has to speak."""
    put_complete_tree(fixture, "1970-01-12T13:46:30Z")
    fixture.remove_pods(*members("a", 2), *members("b", 2))
    fixture.add_pods(*foreign(*members("a", 2), *members("b", 2)))
    assert validate(fixture.context()) == NOTHING
    fixture.put(BAD)
    assert validate(fixture.context()) == NOTHING
    fixture.add_pods(pod("own", group="a"))
    assert [one.target.name for one in validate(fixture.context()).writes] == ["root", "a", "b", "bad"]


def test_a_native_tree_is_left_alone_until_a_pod_of_ours_is_in_it(fixture: ViewFixture) -> None:
    """Without pods it may be any scheduler's; a tree of our own API is ours."""
    fixture.put(*small_tree(), BAD, flavour=NATIVE)
    assert validate(fixture.context(flavour=NATIVE)) == NOTHING
    fixture.add_pods(pod("own", group="a"))
    assert len(validate(fixture.context(flavour=NATIVE)).writes) == 4


def test_the_reason_invalid_is_taken_back_from_a_foreign_tree() -> None:
    """Our API shows its default again, the native one nothing; all else in the status stays."""
    root, *leaves = small_tree()
    kind = initially_scheduled_type(root)
    invalid = with_conditions(root, *NATIVE_STATUS, (kind, "False", "Invalid", TIMESTAMP))
    (custom, _) = invalid.status.conditions or ()
    default = {"conditions": [custom, *pending_status(kind)["conditions"]], "attempt": None}
    for flavour, left in ((CRD, default), (NATIVE, {"conditions": [custom]})):
        found = ViewFixture()
        found.put(invalid, *leaves, BAD, flavour=flavour)
        found.add_pods(*foreign(pod("theirs", group="a")))
        result = validate(found.context(flavour=flavour))
        (write,) = result.writes
        assert (write.verb, write.body, write.event) == (Verb.MERGE_STATUS, left, None)
        assert (write.unchanged, write.once, result.requeue_after) == (True, True, REMEMBERED_SECONDS)


def test_the_metrics_do_not_count_a_foreign_tree_as_invalid(fixture: ViewFixture) -> None:
    """Its condition may be old, or another operator's."""
    root, *leaves = small_tree()
    fixture.put(with_conditions(root, (initially_scheduled_type(root), "False", "Invalid", TIMESTAMP)), *leaves)
    states = TreeStates()
    states.record(fixture.context())
    assert list(states) == [(CRD, "Invalid")]
    fixture.add_pods(*foreign(pod("theirs", group="a")))
    states.record(fixture.context())
    assert list(states) == [(CRD, "Pending")]
