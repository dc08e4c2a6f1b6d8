"""``completion``: the completion of shells."""

import click
from click.shell_completion import get_completion_class

EXAMPLES = """\b
Examples:
  source <(kubectl cpg completion bash)              completes kubectl-cpg in this shell
  kubectl cpg completion fish > ~/.config/fish/completions/kubectl-cpg.fish
  kubectl cpg completion kubectl > ~/bin/kubectl_complete-cpg && chmod +x ~/bin/kubectl_complete-cpg
"""
PROGRAM, VARIABLE, KUBECTL = "kubectl-cpg", "_KUBECTL_CPG_COMPLETE", "kubectl"
FOR_KUBECTL = """\
#!/bin/sh
# kubectl runs this to complete `kubectl cpg`. It has to be executable and on the PATH.
KUBECTL_CPG_COMPLETE_WORDS=1 exec kubectl-cpg "$@"
"""


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", KUBECTL]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Write what a shell needs to complete kubectl-cpg, or what kubectl needs to complete `kubectl cpg`.

    An installation by pip or from an archive has the program for kubectl already, one by Krew has not.
    """
    kind = get_completion_class(shell)
    if kind is None:
        click.echo(FOR_KUBECTL, nl=False)
    else:
        click.echo(kind(context.find_root().command, {}, PROGRAM, VARIABLE).source())
