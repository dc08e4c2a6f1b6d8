"""README and quickstart, word for word: every command in them is run as it stands there, in the order of the document.

They are played in a clone that nobody has worked in, so that nothing is needed that only a developer has. What is built
or fetched once per user is shared.

What stands below a command is what it has to answer, with `...` for what differs from run to run. A block that no test
can run says why in the document itself, in italics above it, where its readers see it too.
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
"""How the blocks begin that no test runs; whoever adds one says so here too."""

DOCUMENTS = tuple(ESCAPED)
PATIENCE = 900
DEMO_TAKES = 180.0
"""Seconds that the demo may take where everything is installed and built."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEREDOC = re.compile(r"<<-?'?(\w+)'?")

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Command:
    """A command of a document, and what it has to answer; None where that is not shown."""

    line: int
    text: str
    answer: str | None


def commands(text: str) -> Iterator[Command]:
    """Yield the commands of a document, without those of blocks that say why they are not run."""
    for block in _FENCE.finditer(text):
        first = text.count("\n", 0, block.start()) + 2
        if is_escaped(text, block.start()):
            continue
        if block[1] == "sh":
            yield Command(first, block[2], None)
        elif block[1] == "console":
            yield from _dialogue(block[2], first)


def is_escaped(text: str, start: int) -> bool:
    """Tell whether the paragraph above a block says why it is not run."""
    return text[:start].rstrip("\n").rpartition("\n\n")[2].startswith(NOT_RUN)


def _dialogue(block: str, first: int) -> Iterator[Command]:
    """Yield each command of a dialogue with what answers it; a heredoc and a broken line belong to the command."""
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
    """Tell whether an answer is the expected one: `...` in a line is anything in it, as a line of its own any lines."""
    lines = [
        r"(?:.*\n)*?" if line.strip() == "..." else r".*?".join(_words(part) for part in line.split("...")) + r" *\n"
        for line in expected.splitlines()
    ]
    return re.fullmatch("".join(lines) + r"\s*", got.rstrip() + "\n") is not None


def _words(text: str) -> str:
    """Return a pattern for a part of a line; how wide a column is depends on what stands in it."""
    return r"\s+".join(map(re.escape, re.split(r"\s+", text)))


def script(told: list[Command], folder: Path) -> str:
    """Return a script of all commands in one shell; what each says goes into a file, and it ends at the first to fail.

    A command with an answer may fail, since that may be what is shown.
    """
    parts = ["set -uo pipefail\n"]
    for number, command in enumerate(told):
        strict = "set -e" if command.answer is None else "set +e"
        parts.append(f"exec > {folder / str(number)} 2>&1\n{strict}\nSECONDS=0\n{command.text.rstrip()}\n")
        parts.append(f"echo $SECONDS > {folder / str(number)}.seconds\n")
    return "".join(parts)


@dataclass(frozen=True)
class Played:
    """A document that was run: the shell's exit code, what each command said that was reached, how long each took."""

    commands: list[Command]
    code: int
    outputs: list[str]
    seconds: list[float]


@contextlib.contextmanager
def lab_of(folder: Path) -> Iterator[dict[str, str]]:
    """Give clusters that commands start a folder of their own, and stop them at the end."""
    environment = os.environ | {"KUBE_CPG_LAB": str(folder)}
    for name in ("KUBECONFIG", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"):  # as in a terminal, also below `make test`
        environment.pop(name, None)
    try:
        yield environment
    finally:
        subprocess.run([LAB, "down", "--all"], env=environment, check=True, capture_output=True)  # noqa: S603 - ours


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clone the sources as a newcomer does, with what is not committed yet in the files that are known; set them up."""
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
def played(request: pytest.FixtureRequest, clone: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Played]:
    """Run a document from its first command to its last."""
    folder = tmp_path_factory.mktemp("document")
    told = list(commands((clone / request.param).read_text("utf-8")))
    with lab_of(folder / "lab") as environment:
        shell = ["bash", "-c", script(told, folder)]
        code = subprocess.run(shell, env=environment, check=False, timeout=PATIENCE, cwd=clone).returncode  # noqa: S603 - our documents
    outputs = [path.read_text("utf-8") for number in range(len(told)) if (path := folder / str(number)).exists()]
    ended = [path for number in range(len(told)) if (path := folder / f"{number}.seconds").exists()]
    return request.param, Played(told, code, outputs, [float(path.read_text("utf-8")) for path in ended])


def test_commands_do_what_the_document_says(played: tuple[str, Played]) -> None:
    """Each works, and answers what stands below it."""
    name, found = played
    last = found.commands[len(found.outputs) - 1]
    reached = (found.code, len(found.outputs))
    assert reached == (0, len(found.commands)), f"{name}:{last.line}: {last.text}\n{found.outputs[-1]}"
    for command, output in zip(found.commands, found.outputs, strict=True):
        if command.answer is not None:
            assert answers(command.answer, output), f"{name}:{command.line}: {command.text}\n{output}"


STORY = """\
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
== A more important tree
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


def test_the_demo_tells_its_story(played: tuple[str, Played]) -> None:
    """The tree waits, is placed in one block, and goes as a whole; the reasons are told, and what to try next."""
    name, found = played
    demos = [
        output for command, output in zip(found.commands, found.outputs, strict=False) if command.text == "make demo\n"
    ]
    assert len(demos) == (name == "README.md")
    for output in demos:
        assert answers(STORY, output), output


def test_a_newcomer_sees_the_demo_soon(played: tuple[str, Played]) -> None:
    """The first command of the README, in a clone that is set up: the whole story."""
    name, found = played
    first = found.commands[0].text
    assert (first == "make demo\n") == (name == "README.md")
    assert first != "make demo\n" or found.seconds[0] < DEMO_TAKES


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_not_run_is_known(name: str) -> None:
    """No block gets round its test unnoticed."""
    text = (ROOT / name).read_text("utf-8")
    left = [block[2] for block in _FENCE.finditer(text) if is_escaped(text, block.start())]
    assert len(left) == len(ESCAPED[name])
    assert all(block.startswith(begin) for block, begin in zip(left, ESCAPED[name], strict=True))


def test_the_demo_can_be_interrupted(tmp_path: Path) -> None:
    """Whoever has seen enough gets a sentence that says what is left, and no trace."""
    with lab_of(tmp_path / "lab") as environment:
        command = [str(ROOT / ".venv" / "bin" / "python"), "tools/demo.py"]
        demo = subprocess.Popen(  # noqa: S603 - ours
            command, env=environment, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert demo.stdout is not None
        while "== The chart" not in (line := demo.stdout.readline()):
            assert line, demo.communicate()
        demo.send_signal(signal.SIGINT)
        _, told = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 130
    assert told == "\ndemo: interrupted; the cluster, if it runs, is stopped by: make lab-down\n"


def test_a_block_that_is_not_run_says_why() -> None:
    """Its reason stands in the paragraph above it; all others are run, with line and answer."""
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
def test_an_answer_is_compared_but_for_what_differs(expected: str, got: str, *, same: bool) -> None:
    """Dots stand for anything, in a line or as one, and the width of columns does not count."""
    assert answers(expected, got) is same
