"""The price of a device-hour, set or cleared by an operator; viewers see it closed, and are refused again when it is
written. The same popover for every page that shows money.
"""

from __future__ import annotations

import streamlit as st

from app import session
from app.access import NotAllowed
from app.glossary import help_of
from app.markup import literal
from app.price import MAX_CURRENCY, Price
from app.status import symbol
from storage.database import StorageError

MOST = 1e6
"""Per device-hour: more is a typing error in any currency that has cents."""


def price_popover(price: Price | None) -> None:
    """A button that says the price, and behind it the fields that change it."""
    label = "Set a price" if price is None else f"{literal(price.currency)} {price.amount:g} / device-h"
    with st.popover(label, icon=symbol("payments"), key="price_popover", help=help_of("price")):
        allowed, lacks = session.may_command()
        stamp = "" if price is None else f"{price.amount}:{price.currency}"
        # keys hold the price that is set, so that the fields show it as soon as somebody else changes it
        amount = st.number_input(
            "Price of a device-hour",
            min_value=0.0,
            max_value=MOST,
            value=None if price is None else price.amount,
            step=0.1,
            format="%g",
            placeholder="such as 2.5",
            key=f"price_amount:{stamp}",
            disabled=not allowed,
        )
        currency = st.text_input(
            "Currency",
            value="EUR" if price is None else price.currency,
            max_chars=MAX_CURRENCY,
            key=f"price_currency:{stamp}",
            disabled=not allowed,
        )
        with st.container(horizontal=True):
            save = st.button("Save", type="primary", key="price_save", disabled=not allowed)
            clear = st.button("No price", key="price_clear", disabled=not allowed or price is None)
        if not allowed:
            st.caption(f"{symbol('visibility_lock')} {literal(lacks)}")
        if save:
            _save(amount, currency)
        if clear:
            _write(None)


def _save(amount: float | None, currency: str) -> None:
    try:
        price = Price(amount=amount or 0.0, currency=currency.strip())
    except ValueError as error:
        st.error(literal(str(error)), icon=symbol("error"))
        return
    _write(price)


def _write(price: Price | None) -> None:
    try:
        session.set_price(price)
    except (NotAllowed, StorageError) as error:
        st.error(f"The price was not saved: {literal(str(error))}", icon=symbol("error"))
        return
    st.rerun()
