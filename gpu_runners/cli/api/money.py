"""`kolm usage`, `bill`, `budgets`, `prices`. The figures are the API's; nothing is added up here."""

import click

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.command_groups import Actions
from gpu_runners.cli.display.printing import print_json, print_lines, print_table, usd, when
from gpu_runners.cli.options import AMOUNT, COUNT, json_option
from gpu_runners.kolm import Bill, Budget, Client

GROUPS = ("day", "step", "sku", "api_key", "compile")


budgets = Actions("budgets")


@click.command()
@click.option("--by", type=click.Choice(GROUPS), default="day", help="what a line is (default: day)")
@click.option("--from", "start", metavar="DAY", help="2026-11-01 or a time; default: the month's begin")
@click.option("--to", "end", metavar="DAY", help="not in it any more; default: now")
@click.option("--csv", "as_csv", is_flag=True, help="print the API's CSV")
@json_option()
@api_options
def usage(*, by: str, start: str | None, end: str | None, as_csv: bool, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        if as_csv:
            print(client.usage.csv(start=start, end=end), end="")
            return
        answer = client.get("/v1/usage", {"group_by": by, "from": start, "to": end})
        if as_json:
            print_json(answer)
            return
        rows = [*answer["data"], {**answer, "key": "total", "n_facts": ""}]
        names = ("charged_microusd", "waste_microusd", "provider_microusd")
        cells = ((row["key"] or "(none)", str(row["n_facts"]), *(usd(row[name]) for name in names)) for row in rows)
        titles = (by, "facts", "charged", "carried by kolm", "your provider, about")
        print_table(titles, cells, right=(1, 2, 3, 4), none="Nothing was used.")

    return run_command(act, connect)


@click.command()
@click.argument("compile_id", metavar="[CMP]", required=False, help="cmp_…")
@json_option()
@api_options
def bill(*, compile_id: str | None, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        bill = client.bills.current() if compile_id is None else client.bills.of_compile(compile_id)
        print_json(bill.raw) if as_json else _print_bill(bill)

    return run_command(act, connect)


@click.command()
@click.argument("model", metavar="[MODEL]", required=False, help="of this model alone")
@click.option("--at", metavar="PLACE", help="a provider (openai, mistral, ...), or a host of the operator's")
@json_option()
@api_options
def prices(*, model: str | None, at: str | None, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        from gpu_runners.cli.display.prices import print_prices

        answer = client.get("/v1/teacher_prices", {"model": model, "place": at})
        print_json(answer) if as_json else print_prices(answer["data"])

    return run_command(act, connect)


@budgets.command("ls", help="All budgets, and how much of each is used.")
@click.option("--limit", type=COUNT, default=100, metavar="N", help="how many (default: 100)")
@json_option()
@api_options
def list_budgets(*, limit: int, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        account, rows = client.account.get(), list(client.budgets.list(limit=limit))
        if as_json:
            print_lines([account, *rows])
            return
        cap = "no spend cap" if account.cap_microusd is None else f"spend cap {usd(account.cap_microusd)}"
        spent = f"spent {usd(account.spent_microusd)}, held {usd(account.held_microusd)}"
        print(f"{account.plan} plan, {cap}; {spent}, until {when(account.period_end)}")
        cells = (
            (
                row.id,
                row.api_key or "account",
                usd(row.cap_microusd),
                usd(row.spent_microusd),
                usd(row.held_microusd),
                "stops" if row.hard_stop else "notifies",
            )
            for row in rows
        )
        titles = ("id", "of", "a month", "spent", "held", "at its end")
        print_table(titles, cells, right=(2, 3, 4), none="There is no budget. `kolm budgets set USD` makes one.")

    return run_command(act, connect)


@budgets.command("set", help="Give the account, or one API key, a budget for each calendar month (UTC).")
@click.argument("cap_microusd", type=AMOUNT, metavar="USD", help="what a month may cost, such as 20")
@click.option("--notify-only", is_flag=True, help="notify at 50, 80 and 100 %, stop nothing")
@click.option("--of-key", metavar="KEY", help="key_…: of this API key alone")
@json_option()
@api_options
def set_budget(*, cap_microusd: int, of_key: str | None, notify_only: bool, as_json: bool, connect: Connect) -> int:
    """Create a budget, or change the cap of the one that this scope has."""

    def act(client: Client) -> None:
        there = next((row for row in client.budgets.list() if row.api_key == of_key), None)
        if there is None:
            row = client.budgets.create(cap_microusd=cap_microusd, api_key=of_key, hard_stop=not notify_only)
        else:
            row = client.budgets.update(there.id, cap_microusd=cap_microusd, hard_stop=not notify_only)
        print_json(row.raw) if as_json else print(_sentence(row))

    return run_command(act, connect)


@budgets.command("rm", help="Remove a budget.")
@click.argument("id", metavar="ID", help="bud_…")
@json_option()
@api_options
def remove_budget(*, id: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        row = client.delete(f"/v1/budgets/{id}")
        print_json(row) if as_json else print(f"{id}: removed.")

    return run_command(act, connect)


def _sentence(row: Budget) -> str:
    whose = f"API key {row.api_key}" if row.api_key else "the account"
    end = "nothing is started beyond it" if row.hard_stop else "you are notified and nothing is stopped"
    return f"{row.id}: {usd(row.cap_microusd)} a month for {whose}; {end}."


def _print_bill(bill: Bill) -> None:
    of = bill.compile or f"{when(bill.period_start)} to {when(bill.period_end)}"
    cells = [(line.label, _quantity(line.quantity, line.unit), usd(line.amount_microusd)) for line in bill.lines
             if line.counted]  # fmt: skip
    cells.append(("total", "", usd(bill.total_microusd)))
    print_table((of, "quantity", "amount"), cells, right=(1, 2), none="")
    beside = [line for line in bill.lines if not line.counted]
    for line in beside:
        print(f"not in the total: {line.label}, {usd(line.amount_microusd)}")


def _quantity(quantity: int | None, unit: str) -> str:
    return "" if quantity is None else f"{quantity:,} {unit}"
