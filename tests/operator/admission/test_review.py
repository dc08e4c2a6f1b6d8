"""What the API server is answered: by what the operator knows, and yes wherever that is not enough."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.manifests import to_manifest
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD, KINDS, NATIVE
from cpg_engine.testing.builders import composite, leaf_template, pod_group, workload
from cpg_operator.admission.review import LONGEST_WARNING, MOST_WARNINGS, Reviewer
from cpg_operator.metrics import Facts, Metrics
from cpg_operator.testing.fixtures import ViewFixture
from cpg_operator.view.cluster_view import ClusterView


class Rig:
    """A gate by a view."""

    def __init__(self, *groups: Group | Workload, ground: ViewFixture | None = None) -> None:
        """Know these."""
        self.ground = ground or ViewFixture()
        for group in groups:
            self.ground.view.put(CRD, group)
        self.metrics = Metrics()
        self.gate = Reviewer(self.metrics)
        self.gate.view = self.ground.view

    def ask(self, new: Any, old: Any = None) -> dict[str, Any]:  # noqa: ANN401  # as JSON is
        """Return the response to a question about an object."""
        request = {"uid": "u", "kind": {"kind": new["kind"]}, "object": new, "oldObject": old}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        answer: dict[str, Any] = msgspec.json.decode(self.gate.answer(msgspec.json.encode(body)))
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        response: dict[str, Any] = answer["response"]
        assert response.pop("uid") == "u"
        return response


CLOSING = composite("y", parent="x")
YES = {"allowed": True}


def test_what_can_never_be_right_is_refused() -> None:
    """With the words of the condition."""
    found = Rig(composite("x", parent="y")).ask(to_manifest(CLOSING))
    assert not found["allowed"]
    assert found["status"]["code"] == 422
    assert found["status"]["message"] == "the parents of CompositePodGroup default/x form a cycle: x -> y -> x"


def test_what_is_there_is_not_known_before_it_has_been_read() -> None:
    """So nothing is refused, and nothing warned of."""
    rig = Rig(composite("x", parent="y"), ground=ViewFixture("default"))
    assert rig.ask(to_manifest(CLOSING)) == YES
    rig.ground.read()
    assert not rig.ask(to_manifest(CLOSING))["allowed"]


def test_what_may_become_right_is_warned_of() -> None:
    """A few things, none of them too long for the API server."""
    leaves = [replace(leaf_template("t"), name=f"{'long' * 60}-{number}") for number in range(9)]
    groups = [pod_group(f"g{number}", workload="w", template=leaf.name) for number, leaf in enumerate(leaves)]
    found = Rig(*groups).ask(to_manifest(workload([leaf_template("other")])))
    assert found["allowed"]
    assert len(found["warnings"]) == MOST_WARNINGS
    assert {len(warning) for warning in found["warnings"]} == {LONGEST_WARNING}
    short = Rig(workload([leaf_template("b")])).ask(to_manifest(pod_group("a", workload="w", template="a")))
    assert short["warnings"] == ["PodGroup default/a references template a, which Workload default/w does not have"]


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (to_manifest(CLOSING), to_manifest(replace(CLOSING, metadata=replace(CLOSING.metadata, labels={"a": "b"})))),
        (
            to_manifest(
                replace(CLOSING, metadata=replace(CLOSING.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
            ),
            None,
        ),
        ({"kind": "Pod"}, None),
        ({"kind": "PodGroup", "spec": 7}, None),
        ({**to_manifest(CLOSING), "spec": None}, None),
    ],
)
def test_nothing_is_said_where_nothing_is_new(new: Any, old: Any) -> None:  # noqa: ANN401  # as JSON is
    """Nor of what is on its way out, of no kind of ours, or not to be read."""
    assert Rig(composite("x", parent="y")).ask(new, old) == YES


def test_who_knows_nothing_allows_everything() -> None:
    """A replica that stands by; one that looks after built-in groups alone; and one with a mistake in it."""
    rig = Rig(composite("x", parent="y"))
    rig.gate.view = None
    assert rig.ask(to_manifest(CLOSING)) == YES
    rig.gate.view = ClusterView({NATIVE: KINDS[NATIVE]}, lambda _: None)
    assert rig.ask(to_manifest(CLOSING)) == YES
    rig.gate.view = rig.ground.view
    del rig.ground.view.stores[CRD].forest
    assert rig.ask(to_manifest(CLOSING)) == YES
    facts = Facts(states=(), queued=0, unwritten=0, age=0.0)
    assert "cpg_operator_mistakes_total 1.0" in rig.metrics.page(facts).decode()


def test_a_deep_object_is_reviewed_like_any_other() -> None:
    """Its deepest levels are cut, so the review sees the rest."""
    deep = msgspec.Raw(b'{"f:a":' * 5000 + b"{}" + b"}" * 5000)
    plain = to_manifest(CLOSING)
    plain["metadata"]["managedFields"] = [{"fieldsV1": deep}]
    assert not Rig(composite("x", parent="y")).ask(plain)["allowed"]


def test_what_is_no_question_is_not_answered() -> None:
    """Whoever asked hears that it was their mistake."""
    with pytest.raises(ValueError, match="required field"):
        Rig().gate.answer(b"{}")
