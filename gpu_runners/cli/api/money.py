"""`kolm usage`, `bill`, `budgets`, `prices`. The figures are the API's; nothing is added up here."""

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.command_groups import Actions
from gpu_runners.cli.display.printing import print_json, print_lines, print_table, usd, when
from gpu_runners.cli.options import AMOUNT, COUNT, json_option
from gpu_runners.kolm import Bill, Budget, Client, Forecast

GROUPS = ("day", "step", "sku", "api_key", "compile", "deployment")
TAG = "tag:"
BY_HELP = f"what a line is: {', '.join(GROUPS)}, or a cost tag as in tag:team (default: day)"


budgets = Actions("budgets")


class _Group(click.ParamType[str]):
    """The kind of a line of usage: a word of the list, or a cost tag."""

    name = "group"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text not in GROUPS and not text.startswith(TAG):
            words = ", ".join(repr(group) for group in GROUPS)
            self.fail(f"{text[:40]!r} is not one of {words}, nor a tag:NAME.", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(group) for group in (*GROUPS, TAG) if group.startswith(incomplete)]


@click.command()
@click.option("--by", type=_Group(), metavar="GROUP", default="day", help=BY_HELP)
@click.option("--tag", metavar="NAME:VALUE", help="usage with this cost tag alone; NAME: without it")
@click.option("--from", "start", metavar="DAY", help="2026-11-01 or a time; default: the month's begin")
@click.option("--to", "end", metavar="DAY", help="not in it any more; default: now")
@click.option("--csv", "as_csv", is_flag=True, help="print the API's CSV")
@json_option()
@api_options
def usage(
    *, by: str, tag: str | None, start: str | None, end: str | None, as_csv: bool, as_json: bool, connect: Connect
) -> int:
    def act(client: Client) -> None:
        if as_csv:
            print(client.usage.csv(start=start, end=end, tag=tag), end="")
            return
        answer = client.get("/v1/usage", {"group_by": by, "from": start, "to": end, "tag": tag})
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
@click.option("--groups", is_flag=True, help="by compile and by deployment")
@click.option("--month", metavar="MONTH", help="2026-11, with --groups; default: this period")
@click.option("--invoice", metavar="INV", help="inv_…: save this invoice as a PDF")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="where to; default: its number")
@json_option()
@api_options
def bill(
    *,
    compile_id: str | None,
    groups: bool,
    month: str | None,
    invoice: str | None,
    out: Path | None,
    as_json: bool,
    connect: Connect,
) -> int:
    if invoice is not None:
        return _save_invoice(invoice, out=out, connect=connect)
    if groups or month is not None:
        return _show_groups(month, as_json=as_json, connect=connect)

    def act(client: Client) -> None:
        bill = client.bills.current() if compile_id is None else client.bills.of_compile(compile_id)
        if as_json:
            print_json(bill.raw)
            return
        _print_bill(bill)
        if compile_id is None:
            _print_forecast(client.bills.forecast())

    return run_command(act, connect)


def _show_groups(month: str | None, *, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        bill = client.bills.groups(month)
        if as_json:
            print_json(bill.raw)
            return
        cells = [
            (group["kind"], group["name"] or group["id"] or "-", usd(group["subtotal_microusd"]))
            for group in bill.groups
        ]
        if bill.credit_applied_microusd:
            cells.append(("", "paid from credit", usd(bill.credit_applied_microusd)))
        cells.append(("", "total", usd(bill.total_microusd)))
        of = f"{when(bill.period_start)} to {when(bill.period_end)}"
        print_table((of, "name", "amount"), cells, right=(2,), none="")

    return run_command(act, connect)


def _save_invoice(invoice_id: str, *, out: Path | None, connect: Connect) -> int:
    def act(client: Client) -> None:
        path = out or Path(f"{client.invoices.get(invoice_id).number}.pdf")
        path.write_bytes(client.invoices.pdf(invoice_id))
        print(f"{path}: written.")

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


def _print_forecast(forecast: Forecast) -> None:
    if forecast.known and forecast.expected_microusd is not None:
        low, high = usd(forecast.low_microusd or 0), usd(forecast.high_microusd or 0)
        print(f"by the period's end: about {usd(forecast.expected_microusd)} of use, {low} to {high}")
    else:
        print(f"forecast: {forecast.why}")


def _quantity(quantity: int | None, unit: str) -> str:
    return "" if quantity is None else f"{quantity:,} {unit}"
