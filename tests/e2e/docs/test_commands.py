"""Every command of README and quickstart is run, in the order of the document, and its output is compared.

The commands run in a fresh clone, so that they need nothing that only a developer has. The per-user cache is shared.
In the expected output `...` stands for anything. A block that no test can run says why in the document, in italics
above it.
"""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LAB = ROOT / ".venv" / "bin" / "cpg-lab"
NOT_RUN = "*Not run by our tests:"
ESCAPED = {"README.md": ["make images", "make test"], "docs/quickstart.md": []}
"""The first words of the blocks that no test runs."""

DOCUMENTS = tuple(ESCAPED)
TIMEOUT = 900
MAX_DEMO_SECONDS = 180.0
"""The demo with everything installed and built."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEREDOC = re.compile(r"<<-?'?(\w+)'?")

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Command:
    """A command of a document, and its expected output; None if none is shown."""

    line: int
    text: str
    answer: str | None


def commands(text: str) -> Iterator[Command]:
    """Yield the commands of a document, except those of blocks that are not run."""
    for block in _FENCE.finditer(text):
        first = text.count("\n", 0, block.start()) + 2
        if is_escaped(text, block.start()):
            continue
        if block[1] == "sh":
            yield Command(first, block[2], None)
        elif block[1] == "console":
            yield from _dialogue(block[2], first)


def is_escaped(text: str, start: int) -> bool:
    """Return whether the paragraph above a block says why it is not run."""
    return text[:start].rstrip("\n").rpartition("\n\n")[2].startswith(NOT_RUN)


def _dialogue(block: str, first: int) -> Iterator[Command]:
    """Yield each command of a dialogue with its output; heredocs and continued lines belong to the command."""
    asked: list[str] = []
    answer: list[str] = []
    start, end = first, ""
    for number, line in enumerate(block.splitlines(), first):
        if line.startswith("$ ") and not end:
            if asked:
                yield Command(start, "\n".join(asked), "\n".join(answer))
            asked, answer, start = [line.removeprefix("$ ")], [], number
            end = found[1] if (found := _HEREDOC.search(line)) else ""
        elif end or (asked and asked[-1].endswith("\\") and not answer):
            asked.append(line)
            end = "" if line == end else end
        else:
            answer.append(line)
    yield Command(start, "\n".join(asked), "\n".join(answer))


def answers(expected: str, got: str) -> bool:
    """Return whether an output is as expected; `...` matches anything in a line, and as a line any lines."""
    lines = [
        r"(?:.*\n)*?" if line.strip() == "..." else r".*?".join(_words(part) for part in line.split("...")) + r" *\n"
        for line in expected.splitlines()
    ]
    return re.fullmatch("".join(lines) + r"\s*", got.rstrip() + "\n") is not None


def _words(text: str) -> str:
    """Return a pattern for a part of a line that ignores the width of columns."""
    return r"\s+".join(map(re.escape, re.split(r"\s+", text)))


def script(listed: list[Command], folder: Path) -> str:
    """Return a script of all commands that writes each output to a file and stops at the first failure.

    A command with an expected output may fail.
    """
    parts = ["set -uo pipefail\n"]
    for number, command in enumerate(listed):
        strict = "set -e" if command.answer is None else "set +e"
        parts.append(f"exec > {folder / str(number)} 2>&1\n{strict}\nSECONDS=0\n{command.text.rstrip()}\n")
        parts.append(f"echo $SECONDS > {folder / str(number)}.seconds\n")
    return "".join(parts)


@dataclass(frozen=True)
class DocumentRun:
    """The run of a document: the exit code, and the output and duration of each command that was reached."""

    commands: list[Command]
    code: int
    outputs: list[str]
    seconds: list[float]


@contextlib.contextmanager
def lab_of(folder: Path) -> Iterator[dict[str, str]]:
    """Yield an environment with its own folder of lab clusters, and stop these at the end."""
    environment = os.environ | {"KUBE_CPG_LAB": str(folder)}
    for name in ("KUBECONFIG", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"):  # as in a terminal, also under `make test`
        environment.pop(name, None)
    try:
        yield environment
    finally:
        subprocess.run([LAB, "down", "--all"], env=environment, check=True, capture_output=True)  # noqa: S603 - ours


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clone the repository, with uncommitted changes of tracked files, and set it up."""
    folder = tmp_path_factory.mktemp("newcomer") / "kube-cpg"
    git("clone", "--quiet", "--no-local", str(ROOT), str(folder))
    if changes := git("-C", str(ROOT), "diff", "--binary", "HEAD"):
        git("-C", str(folder), "apply", "-", given=changes)
    with lab_of(folder / "lab") as environment:
        subprocess.run(["make", "setup"], cwd=folder, env=environment, check=True, capture_output=True)  # noqa: S607 - ours
    return folder


def git(*words: str, given: str = "") -> str:
    """Run git."""
    return subprocess.run(["git", *words], input=given, capture_output=True, text=True, check=True).stdout  # noqa: S603, S607 - ours


@pytest.fixture(scope="module", params=DOCUMENTS)
def document_run(
    request: pytest.FixtureRequest, clone: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, DocumentRun]:
    """Run all commands of a document."""
    folder = tmp_path_factory.mktemp("document")
    listed = list(commands((clone / request.param).read_text("utf-8")))
    with lab_of(folder / "lab") as environment:
        shell = ["bash", "-c", script(listed, folder)]
        code = subprocess.run(shell, env=environment, check=False, timeout=TIMEOUT, cwd=clone).returncode  # noqa: S603 - our documents
    outputs = [path.read_text("utf-8") for number in range(len(listed)) if (path := folder / str(number)).exists()]
    ended = [path for number in range(len(listed)) if (path := folder / f"{number}.seconds").exists()]
    return request.param, DocumentRun(listed, code, outputs, [float(path.read_text("utf-8")) for path in ended])


def test_every_command_of_a_document_works(document_run: tuple[str, DocumentRun]) -> None:
    """Each command succeeds or prints what the document shows."""
    name, found = document_run
    last = found.commands[len(found.outputs) - 1]
    reached = (found.code, len(found.outputs))
    assert reached == (0, len(found.commands)), f"{name}:{last.line}: {last.text}\n{found.outputs[-1]}"
    for command, output in zip(found.commands, found.outputs, strict=True):
        if command.answer is not None:
            assert answers(command.answer, output), f"{name}:{command.line}: {command.text}\n{output}"


DEMO_OUTPUT = """\
...
== Nodes
...
$ helm install kube-cpg ...
...
$ cpg-lab host --name demo ...
...
== A tree waits
...
  block-1   rack-1-1   [  ][  ][  ][  ]
  block-2   rack-2-1   [  ][  ][  ][  ]
...
  minGroupCount (2) cannot be satisfied: room for 1 of 2 child groups; ...
...
== Room appears
...
  block-1   rack-1-1   [t...
            rack-1-2   [t...
  block-2   rack-2-1   [  ][  ][  ][  ]
...
== A tree of higher priority
...
  block-1   rack-1-1   [u...
            rack-1-2   [u...
  block-2   rack-2-1   [  ][  ][  ][  ]
...
train-driver-0-0    Preempted by compositepodgroup ...
...
  CompositePodGroup default/train-job cannot be placed: ...
...
== What next
...
    make lab-down
"""


def test_the_demo_shows_every_step(document_run: tuple[str, DocumentRun]) -> None:
    """The tree waits, is placed in one block and is preempted as a whole; reasons and next commands are shown."""
    name, found = document_run
    demos = [
        output for command, output in zip(found.commands, found.outputs, strict=False) if command.text == "make demo\n"
    ]
    assert len(demos) == (name == "README.md")
    for output in demos:
        assert answers(DEMO_OUTPUT, output), output


def test_the_demo_ends_within_its_time_limit(document_run: tuple[str, DocumentRun]) -> None:
    """In a clone that is set up."""
    _, found = document_run
    times = zip(found.commands, found.seconds, strict=False)
    assert all(seconds < MAX_DEMO_SECONDS for command, seconds in times if command.text == "make demo\n")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_blocks_that_are_not_run_are_listed(name: str) -> None:
    """A block cannot skip its test unnoticed."""
    text = (ROOT / name).read_text("utf-8")
    left = [block[2] for block in _FENCE.finditer(text) if is_escaped(text, block.start())]
    assert len(left) == len(ESCAPED[name])
    assert all(block.startswith(begin) for block, begin in zip(left, ESCAPED[name], strict=True))


def test_the_demo_can_be_interrupted(tmp_path: Path) -> None:
    """It prints how to stop the cluster, and no traceback."""
    with lab_of(tmp_path / "lab") as environment:
        command = [str(ROOT / ".venv" / "bin" / "python"), "tools/demo.py"]
        demo = subprocess.Popen(  # noqa: S603 - ours
            command, env=environment, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert demo.stdout is not None
        while "== The chart" not in (line := demo.stdout.readline()):
            assert line, demo.communicate()
        demo.send_signal(signal.SIGINT)
        _, printed = demo.communicate(timeout=TIMEOUT)
    assert demo.returncode == 130
    assert printed == "\ndemo: interrupted; to stop the cluster: make lab-down\n"


def test_a_block_with_a_reason_above_it_is_not_run() -> None:
    """All other blocks are parsed into commands with line and output."""
    text = "# T\n\n*Not run by our tests: it is the tests.*\n\n```sh\nmake test\n```\n\n```sh\necho 1\n```\n"
    dialogue = "```console\n$ cat <<END\n$ x\nEND\n$ x\n$ ls \\\n  -l\ntotal 0\n```\n"
    assert list(commands(text + dialogue)) == [
        Command(10, "echo 1\n", None),
        Command(13, "cat <<END\n$ x\nEND", ""),
        Command(16, "x", ""),
        Command(17, "ls \\\n  -l", "total 0"),
    ]


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("a b", "a    b\n", True),
        ("a ... c", "a and b and c", True),
        ("a\n...\nd", "a\nb\nc\nd\n", True),
        ("a\n...\nd", "a\nb\n", False),
        ("a...", "b a", False),
        ("one", "one\ntwo", False),
    ],
)
def test_dots_match_anything(expected: str, got: str, *, same: bool) -> None:
    """Dots match in a line and as a line, and the width of columns is ignored."""
    assert answers(expected, got) is same
