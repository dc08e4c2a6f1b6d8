"""Files of users: what stands in them, or one error."""

from pathlib import Path

import pytest

from cpg_client.yaml_reader import YamlFileError, read_yaml

TENFOLD = "".join(
    f"{name}: &{name} [{', '.join(['*' + of] * 10)}]\n" for of, name in zip("abcde", "bcdef", strict=True)
)
ODD = {
    "an alias of itself in a list": "a: &a [*a]",
    "an alias of itself in a map": "a: &a {b: *a}",
    "aliases of aliases": "a: &a [x]\n" + TENFOLD + TENFOLD.translate(str.maketrans("abcdef", "fghijk")),
    "an empty number": "!!int ''",
    "a boolean that is none": "!!bool x",
    "a time that is none": "!!timestamp x",
    "a month that is none": "2026-13-45",
    "a digit too many": "9" * 5000,
    "deep nesting": "[" * 5000,
    "a list as a key": "{[a]: 1}",
    "no text": b"\xff\xfe\xff".decode("latin-1"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_has_one_error(name: str, tmp_path: Path) -> None:
    """Whatever PyYAML raises, or would never end with."""
    file = tmp_path / "file"
    file.write_text(ODD[name], "latin-1")
    with pytest.raises(YamlFileError):
        read_yaml(file)


def test_aliases_can_be_used(tmp_path: Path) -> None:
    """The values that they stand for are few. An empty file has no value."""
    file = tmp_path / "file"
    file.write_text("a: &a [1, {b: 2}]\nc: [*a, *a]")
    assert read_yaml(file) == {"a": [1, {"b": 2}], "c": [[1, {"b": 2}], [1, {"b": 2}]]}
    file.write_text("")
    assert read_yaml(file) is None


def test_a_file_that_is_not_there_has_the_same_error(tmp_path: Path) -> None:
    """It says why."""
    with pytest.raises(YamlFileError, match="cannot be read: No such file"):
        read_yaml(tmp_path / "absent")
