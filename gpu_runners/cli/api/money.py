"""`kolm usage`, `bill`, `budgets`, `prices`. The figures are the API's; nothing is added up here."""

import argparse
from pathlib import Path

from gpu_runners.cli.api.connection import Connect, connect_of, run_command
from gpu_runners.cli.display.printing import print_json, print_lines, print_table, usd, when
from gpu_runners.cli.options import AddOptions, add_api_options, count_of, microusd_of
from gpu_runners.kolm import Bill, Budget, Client, Forecast

GROUPS = ("day", "step", "sku", "api_key", "compile", "deployment")
TAG = "tag:"


def _usage_options(usage: argparse.ArgumentParser) -> None:
    usage.add_argument(
        "--by",
        type=_group_of,
        default="day",
        metavar="GROUP",
        help=f"what a line is: {', '.join(GROUPS)}, or a cost tag as in tag:team (default: day)",
    )
    usage.add_argument("--tag", metavar="NAME:VALUE", help="usage with this cost tag alone; NAME: without it")
    usage.add_argument("--from", dest="start", metavar="DAY", help="2026-11-01 or a time; default: the month's begin")
    usage.add_argument("--to", dest="end", metavar="DAY", help="not in it any more; default: now")
    usage.add_argument("--csv", action="store_true", help="print the API's CSV")
    usage.add_argument("--json", action="store_true", help="print the API's answer")
    usage.set_defaults(command=_run_usage)
    add_api_options(usage)


def _group_of(text: str) -> str:
    if text not in GROUPS and not text.startswith(TAG):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is none of {', '.join(GROUPS)}, tag:NAME")
    return text


def _bill_options(bill: argparse.ArgumentParser) -> None:
    bill.add_argument("compile", metavar="CMP", nargs="?", help="cmp_…")
    bill.add_argument("--groups", action="store_true", help="by compile and by deployment")
    bill.add_argument("--month", metavar="MONTH", help="2026-11, with --groups; default: this period")
    bill.add_argument("--invoice", metavar="INV", help="inv_…: save this invoice as a PDF")
    bill.add_argument("--out", type=Path, metavar="FILE", help="where to; default: its number")
    bill.add_argument("--json", action="store_true", help="print the API's answer")
    bill.set_defaults(command=_run_bill)
    add_api_options(bill)


def _budgets_options(budgets: argparse.ArgumentParser) -> None:
    actions = budgets.add_subparsers(required=True, metavar="ACTION")
    ls = actions.add_parser("ls", help="all budgets, and how much of each is used")
    ls.add_argument("--limit", type=count_of, default=100, metavar="N")
    put = actions.add_parser("set", help="give the account, or one API key, a budget for each calendar month (UTC)")
    put.add_argument("usd", type=microusd_of, metavar="USD")
    put.add_argument("--notify-only", action="store_true", help="notify at 50, 80 and 100 %%, stop nothing")
    put.add_argument("--of-key", metavar="KEY", help="key_…: of this API key alone")
    rm = actions.add_parser("rm", help="remove a budget")
    rm.add_argument("id", metavar="ID")
    for command, act in ((ls, _run_budgets), (put, _run_set_budget), (rm, _run_remove_budget)):
        command.add_argument("--json", action="store_true", help="print the API's answer")
        command.set_defaults(command=act)
        add_api_options(command)


def _prices_options(prices: argparse.ArgumentParser) -> None:
    prices.add_argument("model", metavar="MODEL", nargs="?", help="of this model alone")
    prices.add_argument("--at", metavar="PLACE", help="a provider (openai, mistral, ...), or a host of the operator's")
    prices.add_argument("--json", action="store_true", help="print the API's answer")
    prices.set_defaults(command=_run_prices)
    add_api_options(prices)


def _run_prices(options: argparse.Namespace) -> int:
    return prices(options.model, at=options.at, as_json=options.json, connect=connect_of(options))


def _run_usage(options: argparse.Namespace) -> int:
    return usage(
        options.by,
        start=options.start,
        end=options.end,
        tag=options.tag,
        as_csv=options.csv,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_bill(options: argparse.Namespace) -> int:
    if options.invoice is not None:
        return invoice_pdf(options.invoice, out=options.out, connect=connect_of(options))
    if options.groups or options.month is not None:
        return bill_groups(options.month, as_json=options.json, connect=connect_of(options))
    return bill(options.compile, as_json=options.json, connect=connect_of(options))


def _run_budgets(options: argparse.Namespace) -> int:
    return budgets(limit=options.limit, as_json=options.json, connect=connect_of(options))


def _run_set_budget(options: argparse.Namespace) -> int:
    return set_budget(
        options.usd,
        of_key=options.of_key,
        notify_only=options.notify_only,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_remove_budget(options: argparse.Namespace) -> int:
    return remove_budget(options.id, as_json=options.json, connect=connect_of(options))


def usage(
    by: str,
    *,
    start: str | None,
    end: str | None,
    tag: str | None = None,
    as_csv: bool,
    as_json: bool,
    connect: Connect,
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


def bill(compile_id: str | None, *, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        bill = client.bills.current() if compile_id is None else client.bills.of_compile(compile_id)
        if as_json:
            print_json(bill.raw)
            return
        _print_bill(bill)
        if compile_id is None:
            _print_forecast(client.bills.forecast())

    return run_command(act, connect)


def bill_groups(month: str | None, *, as_json: bool, connect: Connect) -> int:
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


def invoice_pdf(invoice_id: str, *, out: Path | None, connect: Connect) -> int:
    def act(client: Client) -> None:
        path = out or Path(f"{client.invoices.get(invoice_id).number}.pdf")
        path.write_bytes(client.invoices.pdf(invoice_id))
        print(f"{path}: written.")

    return run_command(act, connect)


def prices(model: str | None, *, at: str | None, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        from gpu_runners.cli.display.prices import print_prices

        answer = client.get("/v1/teacher_prices", {"model": model, "place": at})
        print_json(answer) if as_json else print_prices(answer["data"])

    return run_command(act, connect)


def budgets(*, limit: int, as_json: bool, connect: Connect) -> int:
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


def set_budget(cap_microusd: int, *, of_key: str | None, notify_only: bool, as_json: bool, connect: Connect) -> int:
    """Create a budget, or change the cap of the one that this scope has."""

    def act(client: Client) -> None:
        there = next((row for row in client.budgets.list() if row.api_key == of_key), None)
        if there is None:
            row = client.budgets.create(cap_microusd=cap_microusd, api_key=of_key, hard_stop=not notify_only)
        else:
            row = client.budgets.update(there.id, cap_microusd=cap_microusd, hard_stop=not notify_only)
        print_json(row.raw) if as_json else print(_sentence(row))

    return run_command(act, connect)


def remove_budget(id: str, *, as_json: bool, connect: Connect) -> int:
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


OPTIONS: dict[str, AddOptions] = {
    "usage": _usage_options,
    "bill": _bill_options,
    "budgets": _budgets_options,
    "prices": _prices_options,
}
