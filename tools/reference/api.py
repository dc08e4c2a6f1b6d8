"""The page of the API: every field in the schemas of the three kinds."""

from collections.abc import Iterator

from cpg_api.scheduling.names import API_VERSION
from crds.kinds import KINDS, Kind
from crds.rules import Schema
from reference.sources import escaped

NESTING = "compositePodGroupTemplates"
HEADER = f"""\
# API

<!-- Generated from the schemas of the kinds by `python tools/generate_reference.py`. Do not edit. -->

`{API_VERSION}`; all kinds are namespaced and have the subresource `status`. The fields of `spec` are those of
`scheduling.k8s.io/v1alpha3` in Kubernetes 1.37, except for marked extensions. `kubectl explain` shows the same, and
`kubectl get kube-cpg` lists all objects of the three kinds. [Conditions](conditions.md) have their own page.
"""
_LIMITS = {"minimum": "at least", "maximum": "at most", "maxItems": "items at most", "maxLength": "characters at most"}
_LARGEST = 2**31 - 1


def page() -> str:
    """Return the page."""
    return HEADER + "".join(_section(kind) for kind in sorted(KINDS, key=lambda one: one.struct.__name__))


def _section(kind: Kind) -> str:
    version = kind.manifest()["spec"]["versions"][0]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    rows = "".join(
        row for part in ("spec", "status") for row in _rows(part, schema["properties"][part], required=part == "spec")
    )
    columns = ", ".join(f"`{one['name']}`" for one in kind.columns)
    names = ", ".join(f"`{name}`" for name in kind.short_names)
    return (
        f"\n## {kind.struct.__name__}\n\n{escaped(kind.struct.__doc__ or '')}\n\nShort names: {names}. "
        f"Columns of `kubectl get -o wide`: {columns}.\n\n"
        f"| field | type | meaning |\n| --- | --- | --- |\n{rows}{''.join(_demands(schema))}"
    )


def _rows(path: str, schema: Schema, *, required: bool) -> Iterator[str]:
    items = schema.get("items", {})
    kind = f"list of {items.get('type', 'object')}s" if schema.get("type") == "array" else schema.get("type", "any")
    about = escaped(schema.get("description", ""))
    needed = " **Required.**" if required else ""
    if path.count(NESTING) > 1 and path.endswith(NESTING):
        yield f"| `{path}` | {kind} | The same fields again; the fourth level has only `podGroupTemplates`. |\n"
        return
    yield f"| `{path}` | {kind} | {about}{_limited(schema)}{needed} |\n"
    inner = items if items.get("properties") else schema
    dotted = f"{path}[]" if inner is items else path
    for name, one in inner.get("properties", {}).items():
        yield from _rows(f"{dotted}.{name}", one, required=name in inner.get("required", ()))


def _limited(schema: Schema) -> str:
    told = [f"{word} {schema[key]}" for key, word in _LIMITS.items() if key in schema and schema[key] != _LARGEST]
    if schema.get("enum"):
        told.append("one of " + ", ".join(f"`{value}`" for value in schema["enum"]))
    if "default" in schema and not isinstance(schema["default"], dict):
        told.append(f"default `{schema['default']}`")
    return f" ({'; '.join(told)})" if told else ""


def _demands(schema: Schema) -> Iterator[str]:
    """Yield the rules of the API server: each message once, with its fields."""
    about: dict[str, list[str]] = {}
    for path, message in _rules("", schema):
        about.setdefault(message, []).append(f"`{path.lstrip('.') or 'the object'}`")
    yield "\nThe API server refuses by rules between fields:\n\n"
    for message, paths in about.items():
        yield f"- {escaped(message)}: {', '.join(dict.fromkeys(paths))}\n"


def _rules(path: str, schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield each rule of a schema as path and message; nested templates repeat those of the first level."""
    if path.count(NESTING) > 1:
        return
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"{path}{rule.get('fieldPath', '')}", rule["message"]
    for name, one in schema.get("properties", {}).items():
        yield from _rules(f"{path}.{name}", one)
    if isinstance(schema.get("items"), dict):
        yield from _rules(f"{path}[]", schema["items"])
