"""The review of a change: what it is expected to do and when it takes effect; and the sending of it, once confirmed.

A review belongs to the version of the run's configuration that it was made for. When somebody else changes the run in
between it is closed, here and by the engine.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st

from app import prediction, session
from app.access import NotAllowed
from app.clock import count
from app.control_view import commands_of, told_why
from app.figures.forecast import forecast
from app.glossary import help_of
from app.live_chart import chart, live_chart
from app.markup import literal
from app.modelled import Pace, pace_of
from app.palette import CAUSE_LABELS
from app.status import symbol
from app.wanted import Part, Wanted, ahead_of, job_now, wanted
from engine.config.whatif import predicted
from planner.whatif import Band, Prediction
from storage.database import StorageError
from storage.reader import TelemetryReader
from storage.records import RunRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A change that somebody looks at before it is sent."""

    key: str
    """Sending it twice is sending it once."""
    wanted: Wanted
    """The change."""
    version: int
    """The run's config_version that it was made for."""
    prediction: Prediction
    """What is expected."""


def slot(run_id: str) -> str:
    """Where a session keeps the review of a run."""
    return f"_control_review:{run_id}"


def sent_slot(run_id: str) -> str:
    """Where a session keeps the commands that it sent last, to say what becomes of them."""
    return f"_control_sent:{run_id}"


def of(run_id: str) -> Review | None:
    """The review that is open."""
    return st.session_state.get(slot(run_id))


def forget_unless(run_id: str, parts: tuple[Part, ...]) -> None:
    """A review of something else than the form now holds is closed, and the page drawn again."""
    review = of(run_id)
    if review is not None and review.wanted.parts != parts:
        del st.session_state[slot(run_id)]
        st.rerun()


def make(run_id: str, values: Mapping[str, Any]) -> None:
    """Read the run anew, predict and open the review. values: by setting, what the run is wanted to have."""
    change, version, found = Wanted(problem="The run cannot be read."), 0, Prediction(why_not="the run cannot be read")
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            run = reader.run(run_id)
            job = job_now(run) if run is not None else None
            if run is not None and job is not None:
                version = run.config_version or 0
                change = wanted(job, values, ahead_groups=ahead_of(run))
                if change.job is not None:
                    found = predicted(reader, run, job, change.job, commands_of(run_id), ask=prediction.predict_apart)
    except StorageError as error:
        found = Prediction(why_not=str(error))
    st.session_state[slot(run_id)] = Review(key=uuid.uuid4().hex, wanted=change, version=version, prediction=found)


def review_card(run: RunRow, review: Review) -> None:
    """What the change is, what it is expected to do, when it takes effect, and the button that sends it."""
    pace = pace_of(run)
    st.markdown(f"**Review** · {' · '.join(map(literal, review.wanted.told))}{pace.badge}")
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _expected(run, review, pace)
    with right:
        st.markdown("**When it takes effect**")
        st.markdown("\n".join(f"{i}. {literal(told)}" for i, told in enumerate(review.wanted.safe_points, start=1)))
        _confirm(run, review, pace)


def _expected(run: RunRow, review: Review, pace: Pace) -> None:
    found = review.prediction
    now, rate, ratio = found.now, found.tokens_per_s, found.ratio
    if found.why_not or now is None or now.tokens_per_s is None or rate is None or ratio is None:
        why = found.why_not or "nothing is measured yet"
        st.info(f"**No prediction** · {literal(why)}. The change can be sent all the same.", icon=symbol("query_stats"))
        if now is not None and now.tokens_per_s:
            st.caption(f"Measured over the last {now.steps} steps: {_measured(now.tokens_per_s, now.lag, pace)}.")
        return
    one, two, three = st.columns(3, gap="small")
    against = f"{prediction.percent(ratio.middle)} · {prediction.band_text(rate)}"
    better, worse = ratio.low > 1, ratio.high < 1
    # better or worse only where the whole band is
    colour: Literal["green", "red", "gray"] = "green" if better else "red" if worse else "gray"
    one.metric(
        f"Tokens/s{pace.unit}",
        count(rate.middle),
        against,
        delta_color=colour,
        delta_arrow="off",
        help=help_of("expected_tokens_per_s"),
    )
    idle_now, idle_later = sum(now.idle.values()), sum(found.idle.values())
    idle = f"{_between(found.idle_total, '.1%')}now {idle_now:.1%}"
    two.metric("Idle", f"{idle_later:.1%}", idle, delta_color="off", delta_arrow="off", help=help_of("expected_idle"))
    lag_now = "–" if now.lag is None else f"{now.lag:.2f}"
    lag_later = "–" if found.lag is None else f"{found.lag:.2f}"
    lag = f"{_between(found.lag_band, '.2f')}now {lag_now}"
    three.metric(
        "Mean lag, versions", lag_later, lag, delta_color="off", delta_arrow="off", help=help_of("expected_lag")
    )
    rows = prediction.causes(found)
    live_chart(
        chart(
            forecast(now.tokens_per_s, rate, rows, pace=pace),
            label=f"Expected effect: {prediction.expected_effect(found, pace)}",
            note="" if not pace.emulated else "EMULATED: times and speeds are modelled",
            table={
                "columns": ["share of device time", "now", "expected", "from", "to"],
                "rows": [
                    [CAUSE_LABELS[cause], f"{a:.1%}", f"{b:.1%}", *_ends(found.idle_bands.get(cause), ".1%")]
                    for cause, a, b in rows
                ],
            },
        ),
        key=f"forecast:{run.run_id}",
    )
    speeds = "this run's own speeds" if found.measured else "the speeds of the job's profile"
    told = [
        f"Simulated with {speeds} and compared with its last {now.steps} steps.",
        prediction.model_error(found),
        prediction.fit_errors(run),
    ]
    st.caption(literal(" ".join(filter(None, told))), help=help_of("model_error"))


def _ends(band: Band | None, form: str) -> tuple[str, str]:
    """Both ends; dashes without a band."""
    return ("–", "–") if band is None else (f"{band.low:{form}}", f"{band.high:{form}}")


def _between(band: Band | None, form: str) -> str:
    """ "6.0% to 15.1% · ", "" without a band."""
    return "" if band is None else f"{' to '.join(_ends(band, form))} · "


def _measured(tokens_per_s: float, lag: float | None, pace: Pace) -> str:
    late = "" if lag is None else f", mean lag {lag:.2f}"
    return f"{count(tokens_per_s)} tokens/s{pace.unit}{late}"


def _confirm(run: RunRow, review: Review, pace: Pace) -> None:
    allowed, _ = session.may_command()
    stale = (run.config_version or 0) != review.version
    if review.wanted.problem:
        st.error(literal(review.wanted.problem), icon=symbol("error"))
    if stale:
        st.warning("The run was changed since this review was made. Look again before you send.", icon=symbol("sync"))
    several = len(review.wanted.parts) > 1
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        if st.button(
            f"Confirm {len(review.wanted.parts)} changes" if several else "Confirm",
            type="primary",
            icon=symbol("send"),
            key="control_confirm",
            disabled=stale or not allowed or review.wanted.job is None,
        ):
            _send(run, review, pace)
        if stale and st.button("Review again", icon=symbol("rate_review"), key="control_review_again"):
            with st.spinner("Playing the run with and without the change …"):
                make(run.run_id, {name: value for _, payload in review.wanted.parts for name, value in payload.items()})
            st.rerun()
        if st.button("Discard", key="control_discard"):
            del st.session_state[slot(run.run_id)]
            st.rerun()
    told_why()
    if several:
        st.caption("Sent one after the other; when one is refused, those after it are refused too.")


def _send(run: RunRow, review: Review, pace: Pace) -> None:
    """Staleness, partition, policy, each for the version that the one before it leaves."""
    effect = prediction.expected_effect(review.prediction, pace)
    if len(review.wanted.parts) > 1:
        effect = f"{effect}, of {len(review.wanted.parts)} changes together"
    sent = []
    try:
        for place, (kind, payload) in enumerate(review.wanted.parts):
            sent.append(
                session.send(
                    kind,
                    payload,
                    run=run,
                    idem_key=f"{review.key}-{place}",
                    expected_effect=effect,
                    expected_config_version=review.version + place,
                )
            )
    except (StorageError, NotAllowed) as error:
        st.error(f"The change was not sent: {literal(str(error))}", icon=symbol("error"))
        return
    st.session_state[sent_slot(run.run_id)] = tuple(sent)
    del st.session_state[slot(run.run_id)]
    st.rerun()
