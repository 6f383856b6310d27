"""`kolm logs`: a compile's events as lines, with the time of each."""

import json
from typing import Any

import click

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.display.printing import print_json, when
from gpu_runners.cli.display.progress import CompileProgress
from gpu_runners.cli.options import json_option
from gpu_runners.kolm import Client, Event
from gpu_runners.terminal_text import as_line

VALUE_CHARS = 80


@click.command()
@click.argument("compile_id", metavar="CMP", help="cmp_…")
@click.option("-f", "--follow", is_flag=True, help="go on until the compile has ended")
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="N", help="events behind the one of this number"
)
@json_option("one event a line, as the API has it")
@api_options
def logs(*, compile_id: str, follow: bool, after: int, as_json: bool, connect: Connect) -> int:
    story = CompileProgress()

    def act(client: Client) -> None:
        events = (
            client.compiles.events(compile_id, after=after) if follow else client.compiles.log(compile_id, after=after)
        )
        for event in events:
            if as_json:
                print_json({"seq": event.seq, "type": event.type, "data": event.data, "created_at": event.created_at})
            else:
                print(f"{when(event.created_at)}  {text_of(story, event)}", flush=True)

    return run_command(act, connect)


def text_of(story: CompileProgress, event: Event) -> str:
    """The event in words; one that has none as its type and its data."""
    line = story.take(event)
    if line is not None:
        return line.replace("\n", "\n" + " " * 21)
    values = "  ".join(
        f"{name}={_value(value)}" for name, value in event.data.items() if value not in (None, "", [], {})
    )
    return f"{event.type}  {values}".rstrip()


def _value(value: Any) -> str:
    text = as_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= VALUE_CHARS else f"{text[: VALUE_CHARS - 1]}…"
