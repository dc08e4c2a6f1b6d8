"""``kubectl-cpg``, which kubectl runs as ``kubectl cpg``."""

import sys

import click

from cpg_cli.failures import CommandError, ExitCode
from cpg_cli.root import root

PROGRAM = "kubectl cpg"
INTERRUPTED = 130


def main() -> None:
    """Run a command, and end with its exit code."""
    sys.exit(run())


def run() -> int:
    """Run a command, and return its exit code; whatever goes wrong is one or two lines on standard error."""
    code = INTERRUPTED
    try:
        code = int(root.main(prog_name=PROGRAM, standalone_mode=False) or ExitCode.FINE)
    except click.ClickException as error:
        error.show()
        code = ExitCode.USAGE
    except CommandError as error:
        code = _failed(str(error), error.hint, error.code)
    except (click.Abort, KeyboardInterrupt):
        pass
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
