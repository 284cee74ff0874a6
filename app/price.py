"""What a device-hour costs, set by an operator in `control.db`; without a price pages give no money.

Money is device-hours times the price of today, also for runs of the past: a price is what time is worth to the reader.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from storage.database import StorageError
from storage.mailbox import Mailbox
from storage.paths import DataDir

SETTING = "price_per_device_hour"
"""Key in the settings: {"amount": number, "currency": text}."""

MAX_CURRENCY = 8
"""Characters of a currency, such as EUR or $."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A price. Raises ValueError for an amount that is not a finite number above 0, or for a currency without a name
    or with more than `MAX_CURRENCY` characters."""

    amount: float
    """Per device-hour."""
    currency: str
    """Written before the amount."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.amount) and self.amount > 0):
            raise ValueError(f"the price of a device-hour must be a finite number above 0, got {self.amount!r}")
        if not 0 < len(self.currency.strip()) <= MAX_CURRENCY:
            raise ValueError(f"a currency has 1 to {MAX_CURRENCY} characters, got {self.currency!r}")

    def told(self, device_seconds: float) -> str:
        """Such as "EUR 1,234.50": what so much device time costs."""
        money = device_seconds / 3600.0 * self.amount
        digits = 2 if money >= 0.01 or money == 0 else 4
        return f"{self.currency} {money:,.{digits}f}"


def read_price(data: DataDir) -> Price | None:
    """The price that is set, None without one or when it cannot be read: money is an extra, never a reason to fail."""
    if not data.control_db.exists():
        return None
    try:
        with Mailbox(data.control_db) as mailbox:
            stored = mailbox.get_setting(SETTING)
        return None if stored is None else Price(amount=float(stored["amount"]), currency=str(stored["currency"]))
    except (StorageError, KeyError, TypeError, ValueError):
        return None


def as_setting(price: Price | None) -> dict[str, object] | None:
    """What is kept under `SETTING`."""
    return None if price is None else {"amount": price.amount, "currency": price.currency.strip()}
