"""``kubectl-cpg``, which kubectl runs as ``kubectl cpg``."""

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

import click
from click.shell_completion import ShellComplete

from cpg_cli.failures import CommandError, ExitCode
from cpg_cli.root import root

PROGRAM = "kubectl cpg"
COMPLETE_VARIABLE = "_KUBECTL_CPG_COMPLETE"
"""What the completion of a shell sets."""
COMPLETE_WORDS_VARIABLE = "KUBECTL_CPG_COMPLETE_WORDS"
"""What the program sets that kubectl runs for a completion."""
INTERRUPTED = 130
FILES, NO_FILES = ":0", ":4"
OBJECTS_PER_COLLECTION = 200_000
"""What is read of a cluster stays until the end, so the search for garbage among it is only repeated this seldom."""


def main() -> None:
    """Run a command, and end with its exit code."""
    if os.environ.get(COMPLETE_WORDS_VARIABLE):
        complete()
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    sys.exit(run())


def complete() -> NoReturn:
    """Be ``kubectl_complete-cpg``: complete the words of the command line."""
    for line in completions(sys.argv[1:]):
        click.echo(line)
    sys.exit(ExitCode.FINE)


def completions(words: Sequence[str]) -> Iterator[str]:
    """Yield the completions of words, the last of which may be incomplete, each with its help after a tab.

    The last line is a colon and a number that says whether names of files may follow, as kubectl reads it.
    """
    *before, incomplete = words or [""]
    items = ShellComplete(root, {}, PROGRAM, COMPLETE_VARIABLE).get_completions(before, incomplete)
    for item in items:
        if item.type == "plain":
            yield f"{item.value}\t{item.help}" if item.help else str(item.value)
    yield FILES if any(item.type in {"file", "dir"} for item in items) else NO_FILES


def run() -> int:
    """Run a command, and return its exit code; whatever goes wrong is one or two lines on standard error."""
    code = INTERRUPTED
    try:
        code = int(root.main(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, standalone_mode=False) or ExitCode.FINE)
    except click.ClickException as error:
        error.show()
        code = ExitCode.USAGE
    except CommandError as error:
        code = _failed(str(error), error.hint, error.code)
    except (click.Abort, KeyboardInterrupt):
        pass
    except ModuleNotFoundError as error:  # the image has the packages of the processes alone
        code = _failed(f"the package {error.name} is not installed", "pip install kube-cpg", ExitCode.USAGE)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe has enough
        code = ExitCode.FINE
    except Exception as error:  # noqa: BLE001 - users see a sentence, and no traceback
        hint = "this is a mistake in kube-cpg; please report it with the command and `kubectl cpg dump`"
        code = _failed(f"{type(error).__name__}: {error}", hint, ExitCode.SERVER)
    return code


def _failed(message: str, hint: str, code: ExitCode) -> int:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"next: {hint}", err=True)
    return code


if __name__ == "__main__":
    main()
