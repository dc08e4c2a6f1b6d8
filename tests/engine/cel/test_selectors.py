"""Selectors: a table of expressions with their results, what is cached, and what is bounded."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cpg_api.core.devices import CapacityRequestPolicy, Device, DeviceAttribute, DeviceCapacity
from cpg_engine.cel import selectors
from cpg_engine.cel.errors import CelError, CostError, EvaluationError, NotSupportedError
from cpg_engine.cel.planner import CompiledExpression
from cpg_engine.cel.selectors import CompiledSelector, compile_selector
from cpg_engine.cel.values import CelMap

TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("selectors.yaml").read_text())
CASES = [(text, str(verdict).lower()) for cases in TABLE["cases"].values() for text, verdict in cases.items()]
DRIVER = TABLE["driver"]
DEVICE = msgspec.convert(TABLE["device"], Device)


def verdict_of(expression: str, device: Device = DEVICE) -> str:
    """Return the result in the words of the table."""
    try:
        selector = compile_selector(expression)
    except CelError as error:
        return "not supported" if isinstance(error, NotSupportedError) else "compile error"
    try:
        return str(selector.matches(DRIVER, device)).lower()
    except CelError as error:
        return "not supported" if isinstance(error, NotSupportedError) else "runtime error"


@pytest.mark.parametrize(("expression", "verdict"), CASES)
def test_an_expression_has_the_result_of_the_table(expression: str, verdict: str) -> None:
    """Twice: the second result comes from the cache."""
    assert (verdict_of(expression), verdict_of(expression)) == (verdict, verdict)


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Record the devices of all evaluations."""
    seen: list[object] = []
    evaluate = CompiledExpression.evaluate

    def recorded(self: CompiledExpression, device: CelMap, steps: int) -> object:
        seen.append(device)
        return evaluate(self, device, steps)

    monkeypatch.setattr(CompiledExpression, "evaluate", recorded)
    return seen


def gpu(index: int, **more: Any) -> Device:
    """Return a device with a UUID of its own."""
    attributes = {"uuid": DeviceAttribute(string=f"GPU-{index}"), "model": DeviceAttribute(string="A100")}
    capacity = {"memory": DeviceCapacity(value="80Gi", request_policy=CapacityRequestPolicy(valid_values=("1Gi",)))}
    return Device(name=f"gpu-{index}", attributes={**attributes, **more}, capacity=capacity)


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'd'",
        "device.attributes['d'].model == 'A100'",
        "device.attributes['d']['model'] == 'A100' && device.capacity['d'].memory.isInteger()",
        "'model' in device.attributes['d'] && has(device.attributes['d'].model) && 'd' in device.attributes",
        "cel.bind(d, device.attributes['d'], d.model == 'A100' && !has(d.other))",
        "cel.bind(d, device.attributes['d'].model, d == 'A100')",
        "device.attributes['d'].?model.orValue('') == 'A100' && device.attributes[?'d'][?'model'].hasValue()",
        "[1].exists(device, device == 1) && device.attributes['d'].model == 'A100'",
        "[1].all(.device, .device.attributes['d'].model == 'A100')",
        "[device.attributes['d'].model].exists(device, device == 'A100')",
        "['A100'].exists(model, model == device.attributes['d'].model)",
        "cel.bind(device, 1, device == 1)",
        "has(device.attributes) && type(1) == int",
    ],
)
def test_devices_that_differ_in_other_attributes_are_evaluated_once(expression: str, evaluations: list[object]) -> None:
    """The UUID is not read."""
    selector = CompiledSelector(expression)
    assert all(selector.matches("d", gpu(index)) for index in range(5))
    assert len(evaluations) == 1


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['d'].exists(name, name == 'model')",
        "size(device.attributes['d']) == 2",
        "device.attributes == device.attributes",
        "device.attributes['d'][device.attributes['d'].model == '' ? 'x' : 'model'] == 'A100'",
        "[device].size() == 1",
        "dyn(device).driver == 'd'",
        "cel.bind(d, device.attributes['d'], size(d) == 2)",
        "device.attributes['d'].uuid != ''",
        "{'a': device.attributes['d']}.size() == 1",
    ],
)
def test_what_reads_a_whole_map_depends_on_all_of_it(expression: str, evaluations: list[object]) -> None:
    """A device with another UUID is evaluated again, an equal device is not."""
    selector = CompiledSelector(expression)
    assert all(selector.matches("d", gpu(index // 2)) for index in range(4))
    assert len(evaluations) == 2


def test_a_result_depends_on_what_is_read() -> None:
    """Driver, attributes, capacities, and whether the device can be allocated more than once."""
    parts = ("device.driver == 'd'", "device.attributes['d'].model == 'A100'", "'o.io' in device.attributes")
    selector = CompiledSelector(" && ".join(parts))
    other = {"o.io/x": DeviceAttribute(int_value=1)}
    assert not selector.matches("d", gpu(1))
    assert selector.matches("d", gpu(1, **other))
    assert not selector.matches("d", gpu(1, **other, model=DeviceAttribute(string="H100")))
    assert not selector.matches("e", gpu(1, **other))
    shareable = CompiledSelector("device.allowMultipleAllocations && 'd' in device.capacity")
    assert not shareable.matches("d", gpu(1))
    assert shareable.matches("d", Device(allow_multiple_allocations=True, capacity={"d/x": DeviceCapacity(value=1)}))


def test_a_name_with_the_domain_of_the_driver_is_the_same_name() -> None:
    """It comes first, should both be there."""
    both = {"d/x": DeviceAttribute(int_value=1), "x": DeviceAttribute(int_value=2)}
    for expression in ("device.attributes['d'].x == 1", "device.attributes['d'].all(name, value, value == 1)"):
        assert CompiledSelector(expression).matches("d", Device(attributes=both))
        assert not CompiledSelector(expression).matches("d", Device(attributes={"x": both["x"]}))


def test_an_attribute_without_a_value_is_an_error() -> None:
    """It may be of a type that a later version has."""
    with pytest.raises(EvaluationError, match="unsupported attribute value"):
        CompiledSelector("device.attributes['d'].x == 1").matches("d", Device(attributes={"x": DeviceAttribute()}))


def test_caches_are_bounded(monkeypatch: pytest.MonkeyPatch, evaluations: list[object]) -> None:
    """Results and readers are dropped when there are too many."""
    monkeypatch.setattr(selectors, "_CACHED_RESULTS", 2)
    selector = CompiledSelector("device.attributes['d'].uuid != device.driver")
    for index in (1, 2, 3, 1):
        assert selector.matches("d", gpu(index))
    assert len(evaluations) == 4
    assert (len(selector._results), len(selector._readers)) == (2, 1)
    for driver in ("e", "f", "g"):
        with pytest.raises(EvaluationError):
            selector.matches(driver, gpu(1))
    assert len(selector._readers) == 2


def test_selectors_and_errors_are_compiled_once() -> None:
    """An expression that does not compile raises a new error each time."""
    assert compile_selector("device.driver == 'once'") is compile_selector("device.driver == 'once'")
    for _ in range(2):
        with pytest.raises(CelError, match="undeclared reference to 'nothing'"):
            compile_selector("nothing")


def doubled(value: str, step: str, end: str) -> str:
    """Return an expression that doubles a value 30 times."""
    bound = "".join(f"cel.bind(x{index + 1}, {step.format(f'x{index}')}, " for index in range(30))
    return f"cel.bind(x0, {value}, {bound}{end.format('x30')}{')' * 31}"


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))",
        "lists.range(1000000).size() > 1",
        "cel.bind(a, lists.range(9000), cel.bind(b, a + a, cel.bind(c, b + b, cel.bind(d, c + c, d + d == d + d))))",
        doubled("'abcdefgh'", "{0} + {0}", "{0} == ''"),
        doubled("[1]", "[{0}, {0}]", "{0} == {0}"),
        "cel.bind(s, lists.range(9000).map(x, 'abcdefgh').join(), s.replace('a', s) == '')",
        "cel.bind(s, lists.range(9000).map(x, 'abcdefgh').join(), lists.range(1000).map(x, s).join() == '')",
        "lists.range(2000).distinct().size() > 1",
        "lists.range(1000).all(x, !'aaaaaaaa'.matches('a' + string(x)))",
        "lists.range(600).map(x, lists.range(600)).flatten().size() == 1",
    ],
)
def test_an_evaluation_ends(expression: str) -> None:
    """&& and || do not absorb the error."""
    with pytest.raises(CostError, match="too many steps"):
        CompiledSelector(f"{expression} || true").matches("d", gpu(1))


def test_long_conditions_are_not_deep() -> None:
    """Each operator of a chain of && is at the same level."""
    assert CompiledSelector(" && ".join(["true"] * 1000)).matches("d", gpu(1))
    assert CompiledSelector(" || ".join(["false && true"] * 1000 + ["true"])).matches("d", gpu(1))


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 60 + "true" + ")" * 60,
        "[" * 5000 + "]" * 5000,
        " + ".join(["1"] * 200) + " == 200",
        "device" + ".a" * 200,
    ],
)
def test_deep_expressions_are_refused(expression: str) -> None:
    """So that none exhausts the stack."""
    with pytest.raises(NotSupportedError, match="not supported"):
        CompiledSelector(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "cel.bind(x0, 1, "
        + "".join(f"cel.bind(x{index + 1}, {{x{index}: x{index}}}, " for index in range(40))
        + f"x40 == x40{')' * 41}",
        "[].all(x0, "
        + "".join(f"[].all(x{index + 1}, x{index} == {{x{index + 1}: x{index + 1}}} && " for index in range(40))
        + f"x0 == x1{')' * 41}",
    ],
)
def test_types_that_grow_without_bounds_are_refused(expression: str) -> None:
    """Each has the one before twice inside."""
    with pytest.raises(NotSupportedError, match="types as complex as these"):
        CompiledSelector(expression)


def test_chains_of_macros_take_linear_time() -> None:
    """The optional is evaluated once."""
    assert CompiledSelector(f"optional.of(1){'.optMap(x, x + 1)' * 60}.value() == 61").matches("d", gpu(1))


def test_long_texts_are_not_cached() -> None:
    """Neither versions nor patterns; a long quantity is not read at all."""
    long = "1" * 300
    assert CompiledSelector(f"'{long}'.matches('^{long}$') && isSemver('1.2.3-a{long}')").matches("d", gpu(1))
    with pytest.raises(NotSupportedError, match="quantities of more than 255 characters are not supported"):
        CompiledSelector(f"isQuantity('{long}')").matches("d", gpu(1))


def test_large_patterns_are_refused() -> None:
    """They take long to compile."""
    with pytest.raises(NotSupportedError, match="pattern too large"):
        CompiledSelector(r"'a'.matches(r'\pL{1000}')")


def test_deep_macros_fit_the_stack() -> None:
    """Up to the limit."""
    depth = 48
    text = "".join(f"[1].all(x{index}, " for index in range(depth)) + "true" + ")" * depth
    assert CompiledSelector(text).matches("d", gpu(1))


def test_messages_say_what_is_not_supported() -> None:
    """By the name of the function and its library."""
    with pytest.raises(NotSupportedError, match="the function getHost of the URL library is not supported"):
        compile_selector("device.driver.getHost() == ''")
    with pytest.raises(CelError, match="must evaluate to bool, not string"):
        compile_selector("device.driver")
    with pytest.raises(CelError, match="syntax error: unexpected end of the expression at position 7"):
        compile_selector("true &&")
    with pytest.raises(CelError, match=r"found no matching overload for '\+' applied to \(list\(int\), string\)"):
        compile_selector("[1] + 'a'")
    with pytest.raises(CelError, match=r"list\(list\(list\(list\(\.\.\.\)\)\)\), string\)"):
        compile_selector("[[[[[1]]]]] + 'a'")
