"""`kolm completion SHELL`: the script by which a shell asks this command for completions."""

import click
from click.shell_completion import get_completion_class

from gpu_runners.cli.exit_codes import OK

HELP = 'bash: eval "$(kolm completion bash)" in ~/.bashrc; zsh the same in ~/.zshrc; fish: | source in config.fish'


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), help=HELP)
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    script = get_completion_class(shell)
    assert script is not None
    print(script(context.find_root().command, {}, "kolm", "_KOLM_COMPLETE").source())
    return OK
