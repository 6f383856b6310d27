"""Prices, checkout, subscriptions and invoices, as the Stripe double has them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from tests.doubles.stripe_meters import Meters
from tests.doubles.stripe_params import Refused
from tests.doubles.stripe_world import HOUR_S, World


def month_after(unix_s: int, anchor: int) -> int:
    """The next turn of a monthly cycle: `anchor` here is always the first of a month, 00:00 UTC."""
    at = datetime.fromtimestamp(unix_s, tz=UTC)
    assert datetime.fromtimestamp(anchor, tz=UTC).day == 1
    first = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    nxt = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return int(nxt.timestamp())


def cents(quantity: int, unit_amount_decimal: str) -> int:
    """Page "Decimal amounts for pricing": "rounding occurs after the quantity is multiplied by the decimal amount. In
    this case, the calculated amount for the line item would be 0.05 * 30 = 1.5, which is then rounded up to 2
    cents"."""
    return int((quantity * Decimal(unit_amount_decimal)).to_integral_value(rounding=ROUND_HALF_UP))


@dataclass
class Billing:
    world: World
    meters: Meters

    # --- products and prices ----------------------------------------------------------------------------------

    def product(self, given: dict[str, Any]) -> dict[str, Any]:
        if given.get("id") and self.world.get("product", given["id"]):
            raise Refused(f"Product already exists: {given['id']}", code="resource_already_exists", param="id")
        return self.world.add("prod", "product", **({"active": True, "metadata": {}} | given))

    def price(self, given: dict[str, Any]) -> dict[str, Any]:
        key = given.get("lookup_key")
        # `PriceCreateParams`: a lookup key is "A lookup key used to retrieve prices dynamically from a static string";
        # one active price may have it unless `transfer_lookup_key` moves it.
        if key and any(price["lookup_key"] == key for price in self.world.all("price")):
            raise Refused(f"A price already uses the lookup key {key}.", code="resource_already_exists")
        if not self.world.get("product", given.get("product", "")):
            raise Refused("No such product", code="resource_missing", param="product")
        recurring = {"interval_count": 1, "meter": None, "usage_type": "licensed"} | (given.get("recurring") or {})
        if recurring["usage_type"] == "metered" and not self.world.get("billing.meter", recurring["meter"] or ""):
            raise Refused("Metered prices need a meter.", param="recurring[meter]")
        amount = given.get("unit_amount_decimal", given.get("unit_amount"))
        exact = Decimal(str(amount))
        # Page "Decimal amounts for pricing": "if you create a price with unit_amount_decimal = 0.05, the response
        # contains unit_amount = null".
        whole = int(exact) if exact == exact.to_integral_value() else None
        kept = {"active": True, "type": "recurring", "metadata": {}, "lookup_key": None, **given}
        kept |= {"recurring": recurring, "unit_amount": whole, "unit_amount_decimal": format(exact, "f")}
        return self.world.add("price", "price", **kept)

    # --- checkout ---------------------------------------------------------------------------------------------

    def checkout(self, given: dict[str, Any]) -> dict[str, Any]:
        for i, item in enumerate(given["line_items"]):
            price = self.world.get("price", item["price"])
            if price is None:
                raise Refused(f"No such price: '{item['price']}'", code="resource_missing", param=f"line_items[{i}]")
            if price["recurring"]["usage_type"] == "metered" and "quantity" in item:
                raise Refused("Quantity should not be specified where usage_type is `metered`.", param="line_items")
        if not self.world.get("customer", given.get("customer", "")):
            raise Refused("No such customer", code="resource_missing", param="customer")
        anchor = given.get("subscription_data", {}).get("billing_cycle_anchor")
        # `SessionCreateParamsSubscriptionData.billing_cycle_anchor`: "A future timestamp to anchor the subscription's
        # billing cycle for new subscriptions."
        if anchor is not None and anchor <= self.world.now:
            raise Refused("billing_cycle_anchor must be in the future.", param="subscription_data")
        kept = {"status": "open", "subscription": None, "payment_status": "unpaid", "client_reference_id": None}
        row = self.world.add("cs", "checkout.session", **(kept | given))
        row["url"] = f"https://checkout.stripe.com/c/pay/{row['id']}"
        return row

    def pay_checkout(self, id: str, *, price_id: str | None = None) -> dict[str, Any]:
        """A person pays on Stripe's page; `price_id` is for tests of a session that sold something else."""
        session = self.world.objects["checkout.session"][id]
        data = session["subscription_data"]
        items = [dict(item) for item in session["line_items"]]
        if price_id:
            items[0]["price"] = price_id
        subscription = self._subscribe(session["customer"], items, data)
        session |= {"status": "complete", "payment_status": "paid", "subscription": subscription["id"]}
        self.world.emit("checkout.session.completed", session)
        return subscription

    def _subscribe(self, customer: str, items: list[dict[str, Any]], data: dict[str, Any]) -> dict[str, Any]:
        now, anchor = self.world.now, data.get("billing_cycle_anchor")
        end = anchor or month_after(now, now)
        row = self.world.add(
            "sub",
            "subscription",
            customer=customer,
            status="active",
            metadata=data.get("metadata", {}),
            billing_cycle_anchor=end,
            start_date=now,
            cancel_at_period_end=False,
            cancel_at=None,
            canceled_at=None,
            ended_at=None,
            currency="usd",
        )
        listed = [self._item(row, item, now, end) for item in items]
        row["items"] = {"object": "list", "data": listed, "has_more": False, "url": "/v1/subscription_items"}
        self._first_invoice(row, now, end)
        self.world.emit("customer.subscription.created", row)
        return row

    def _item(self, row: dict[str, Any], item: dict[str, Any], start: int, end: int) -> dict[str, Any]:
        price = self.world.objects["price"][item["price"]]
        made = {"id": self.world.new_id("si"), "object": "subscription_item", "created": start, "price": price}
        made |= {"subscription": row["id"], "current_period_start": start, "current_period_end": end, "metadata": {}}
        return made | ({"quantity": item["quantity"]} if "quantity" in item else {})

    def _first_invoice(self, row: dict[str, Any], start: int, end: int) -> None:
        """Page "Set the billing cycle date": "a monthly subscription created on May 15 with an anchor at June 1 is
        billed on May 15, then always on the 1st of the month. [...] By default [...] customers receive a prorated
        invoice." """
        flat = [item for item in row["items"]["data"] if item["price"]["recurring"]["usage_type"] == "licensed"]
        first = datetime.fromtimestamp(end, tz=UTC)
        begun = first.replace(year=first.year - (first.month == 1), month=(first.month - 2) % 12 + 1)
        share = Decimal(end - start) / (end - int(begun.timestamp()))
        lines = []
        for item in flat:
            amount = int((item["price"]["unit_amount"] * share).to_integral_value(rounding=ROUND_HALF_UP))
            lines.append(self._line(item, amount, item["quantity"], start, end))
        invoice = self._invoice(row, "subscription_create", lines, start, start)
        self.finalize(invoice["id"], collects=True)

    # --- invoices ---------------------------------------------------------------------------------------------

    def _line(self, item: dict[str, Any], amount: int, quantity: int, start: int, end: int) -> dict[str, Any]:
        price = item["price"]
        details = {"price_details": {"price": price["id"], "product": price["product"]}, "type": "price_details"}
        line = {"id": self.world.new_id("il"), "object": "line_item", "amount": amount, "subtotal": amount}
        line |= {"currency": "usd", "description": price.get("nickname") or price["lookup_key"], "livemode": False}
        line |= {"quantity": quantity, "period": {"start": start, "end": end}, "pricing": details}
        return line | {"_item": item["id"], "metadata": {}, "_meter": price["recurring"]["meter"]}

    def _invoice(
        self, sub: dict[str, Any], reason: str, lines: list[dict[str, Any]], start: int, end: int
    ) -> dict[str, Any]:
        about = {"subscription": sub["id"], "metadata": sub["metadata"]}
        row = self.world.add(
            "in",
            "invoice",
            customer=sub["customer"],
            parent={"type": "subscription_details", "subscription_details": about, "quote_details": None},
            status="draft",
            billing_reason=reason,
            currency="usd",
            auto_advance=True,
            period_start=start,
            period_end=end,
            total_pretax_credit_amounts=[],
            total_taxes=[],
            hosted_invoice_url=None,
            invoice_pdf=None,
            number=None,
            status_transitions={"finalized_at": None, "paid_at": None},
            metadata={},
        )
        row["lines"] = {"object": "list", "data": lines, "has_more": False, "url": f"/v1/invoices/{row['id']}/lines"}
        self._sum(row)
        self.world.emit("invoice.created", row)
        return row

    def _sum(self, row: dict[str, Any]) -> None:
        subtotal = sum(line["amount"] for line in row["lines"]["data"])
        credit = sum(part["amount"] for part in row["total_pretax_credit_amounts"])
        row |= {"subtotal": subtotal, "total": subtotal - credit, "amount_due": subtotal - credit}

    def cycle(self, sub: dict[str, Any]) -> None:
        """The end of a billing period: a draft with the usage that was and the flat price that will be."""
        end = sub["items"]["data"][0]["current_period_end"]
        ends = sub["cancel_at_period_end"]
        following = month_after(end, end)
        lines = []
        for item in sub["items"]["data"]:
            if item["price"]["recurring"]["usage_type"] == "metered":
                lines.append(self._line(item, 0, 0, item["current_period_start"], end))
            elif not ends:
                amount = item["price"]["unit_amount"] * item["quantity"]
                lines.append(self._line(item, amount, item["quantity"], end, following))
        start = sub["items"]["data"][0]["current_period_start"]
        for item in sub["items"]["data"]:
            item |= {"current_period_start": end, "current_period_end": following}
        invoice = self._invoice(sub, "subscription_cycle", lines, start, end)
        self._measure(invoice, seen_by=self.world.now - self.meters.lag_s)
        if ends:
            sub |= {"status": "canceled", "canceled_at": end, "ended_at": end}
            self.world.emit("customer.subscription.deleted", sub)
        else:
            self.world.emit("customer.subscription.updated", sub)

    def _measure(self, invoice: dict[str, Any], *, seen_by: int | None) -> None:
        for line in invoice["lines"]["data"]:
            if line["_meter"]:
                start, end = line["period"]["start"], line["period"]["end"]
                total = self.meters.total(line["_meter"], invoice["customer"], start, end, seen_by=seen_by)
                # Page "Configure meters": "If the overall cycle usage is negative, Stripe reports the invoice line
                # item usage quantity as 0."
                line["quantity"] = max(0, total)
                price = self.world.objects["price"][line["pricing"]["price_details"]["price"]]
                line["amount"] = line["subtotal"] = cents(line["quantity"], price["unit_amount_decimal"])
        self._sum(invoice)

    def finalize(self, id: str, *, collects: bool) -> dict[str, Any]:
        row = self.world.objects["invoice"][id]
        if row["status"] != "draft":
            # Page "Status transitions and finalization": only a draft becomes open by `finalize`.
            raise Refused("This invoice is already finalized.", code="invoice_not_editable")
        # Page "Configure an invoice finalization grace period": "When the invoice finalizes, Stripe updates it to
        # reflect the latest quantity for its billing period."
        self._measure(row, seen_by=None)
        metered = sum(line["amount"] for line in row["lines"]["data"] if line["_meter"])
        # Page "Set up billing credits": "Billing credits only apply to subscription invoice line items that link to a
        # billing meter price."
        credit = self.meters.apply_credits(row["customer"], metered)
        if credit:
            part = {"amount": credit, "type": "credit_balance_transaction", "discount": None}
            row["total_pretax_credit_amounts"] = [part | {"credit_balance_transaction": self.world.new_id("cbtxn")}]
        self._sum(row)
        row |= {"status": "open", "number": row["id"].upper(), "auto_advance": collects}
        row["hosted_invoice_url"] = f"https://invoice.stripe.com/i/{row['id']}"
        row["invoice_pdf"] = f"https://pay.stripe.com/invoice/{row['id']}/pdf"
        row["status_transitions"]["finalized_at"] = self.world.now
        self.world.emit("invoice.finalized", row)
        if collects:
            self._collect(row)
        return row

    def _collect(self, row: dict[str, Any]) -> None:
        """Page "Status transitions and finalization": open, by pay: invoice.paid and paid, or invoice.payment_failed
        and open."""
        sub = self.world.objects["subscription"][row["parent"]["subscription_details"]["subscription"]]
        if self.world.objects["customer"][row["customer"]].get("_declines"):
            self.world.emit("invoice.payment_failed", row)
            if sub["status"] == "active":
                sub["status"] = "past_due"
                self.world.emit("customer.subscription.updated", sub)
            return
        row["status"] = "paid"
        row["status_transitions"]["paid_at"] = self.world.now
        self.world.emit("invoice.paid", row)

    def tick(self) -> None:
        """What is due at the clock's time."""
        for sub in list(self.world.all("subscription")):
            if sub["ended_at"] is None and sub["items"]["data"][0]["current_period_end"] <= self.world.now:
                self.cycle(sub)
        for row in list(self.world.all("invoice")):
            if row["status"] == "draft" and row["auto_advance"] and self._is_final_by_itself(row):
                self.finalize(row["id"], collects=True)

    def _is_final_by_itself(self, row: dict[str, Any]) -> bool:
        """Page "Status transitions and finalization": "We wait an hour after receiving a successful response to the
        invoice.created event before attempting payment. If we don't receive a successful response within 72 hours, we
        attempt to finalize and send the invoice." """
        acknowledged = row.get("_acknowledged_at")
        if acknowledged is not None:
            return bool(self.world.now >= acknowledged + HOUR_S)
        return bool(self.world.now >= row["created"] + 72 * HOUR_S)
