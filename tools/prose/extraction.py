"""Prose of a file, line by line.

In Python, prose is comments, docstrings and all other strings that contain a space; a string without one is an
identifier. In all other text files it is every line. Not prose, and so neither searched nor counted, are:

- text in backticks, which is a name;
- a block quotation in Markdown;
- a line that says ``prose: quotation`` or ``prose: people`` in a comment: the words are somebody else's, or the
  subject is a person. A Python string that spans lines is excepted as a whole.
"""  # prose: people

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

SUFFIXES = {".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".tpl", ".sh", ".go", ""}
_STRINGS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.COMMENT)}
_LITERAL = re.compile(r"(?s)^(?P<prefix>[A-Za-z]*)(?P<quote>\"\"\"|'''|\"|')(?P<text>.*)(?P=quote)$")
_EXPRESSION = re.compile(r"\{[^{}]*\}")
_NAME = re.compile(r"(`+)[^`]+\1")
_EXCEPTION = re.compile(r"prose: (quotation|people)\b")


class Line(NamedTuple):
    """A line of prose and its number in the file."""

    number: int
    text: str


def is_readable(path: str) -> bool:
    """Return whether a file of this name contains prose that a person wrote."""
    return PurePosixPath(path).suffix in SUFFIXES


def prose(path: str, text: str) -> Iterator[Line]:
    """Yield the prose of a file, without names and exceptions."""
    lines = _of_python(text) if path.endswith(".py") else _of_text(path, text)
    for line in lines:
        yield Line(line.number, _NAME.sub(" ", line.text))


def _of_python(text: str) -> Iterator[Line]:
    source = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _STRINGS:
            continue
        (first, _), (last, _) = token.start, token.end
        if _EXCEPTION.search(source[first - 1]) or _EXCEPTION.search(source[last - 1]):
            continue
        content = _content(token)
        if " " in content.strip():
            yield from (Line(first + index, part) for index, part in enumerate(content.splitlines()))


def _content(token: tokenize.TokenInfo) -> str:
    """Return a token's text without quotes and without the expressions of a formatted string."""
    literal = _LITERAL.match(token.string)
    if token.type != tokenize.STRING or literal is None:
        return token.string
    return _EXPRESSION.sub(" ", literal["text"]) if "f" in literal["prefix"].lower() else literal["text"]


def _of_text(path: str, text: str) -> Iterator[Line]:
    has_quotations = path.endswith(".md")
    for number, line in enumerate(text.splitlines(), 1):
        is_quotation = has_quotations and line.lstrip().startswith("> ")
        if not is_quotation and not _EXCEPTION.search(line):
            yield Line(number, line)
