"""Decisions: why did it lend, or not? Every decision about a lease, what was expected of it, and what came of it.

    numbers a direction  <- sums in SQL, every few seconds
    list | one decision  <- a page of the list at a time; the URL names the one that is opened
    predicted, regret    <- every measured lease, in short

Each part refreshes by itself; nothing is sent where nothing is new.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import streamlit as st

from app import decision_detail, decision_list, decision_reading, detail, header, session, states
from app.decision_charts import over_time_chart, predicted_chart
from app.decision_numbers import direction_numbers, directions
from app.decision_rows import nothing_decided
from app.glossary import help_of, helps_of
from app.lending import DIRECTION_WORDS, SUMS_EVERY_S
from app.live_chart import kept_chart, live_chart, number_cards
from app.live_page import chosen, every, without_run
from app.markup import literal
from app.modelled import pace_of
from app.picture import Picture, read_kept
from app.run_job import deterministic
from app.runs_table import state_of
from app.status import symbol
from engine.config import BORROWING_ARMS
from storage.database import StorageError
from storage.reader import TelemetryReader
from storage.records import LeaseOutcome, LeaseVerdict
from storage.words import TERMINAL

TITLE, QUESTION = "Decisions", "Why did it lend, or not?"

NUMBERS_HELP = ("leases_granted", "paid_off_share", "switch_cost_median", "measured_gain_sum", "regret_sum", "guard")
"""Terms of the numbers of a direction."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen(Picture):
    """What the page shows of a run as a whole; costs and gains modelled."""

    counts: dict[str, dict[str, int]]
    """Direction -> admitted, refused, delivered."""
    outcomes: dict[str, LeaseOutcome]
    """Direction -> what its leases cost and brought."""
    verdicts: list[LeaseVerdict]
    """Of every measured lease, oldest grant first."""
    summed_at: float
    """When the three above were read, unix seconds."""

    @property
    def decided(self) -> bool:
        """Whether anything was."""
        return any(any(counts.values()) for counts in self.counts.values())


def read(run_id: str) -> tuple[Seen | None, StorageError | None]:
    """The newest picture, or the last good one and why it is not newer. A run that is over is summed once."""
    slot = f"_decisions_seen:{run_id}"
    last: Seen | None = st.session_state.get(slot)
    now = session.now()
    if last is not None and last.run.state in TERMINAL:
        return last, None
    return read_kept(slot, lambda reader: _look(reader, run_id, last, now))


def _look(reader: TelemetryReader, run_id: str, last: Seen | None, now: float) -> Seen | None:
    run, engine = reader.run(run_id), reader.engine()
    if run is None:
        return None
    young = last is not None and 0 <= now - last.summed_at < SUMS_EVERY_S and run.state not in TERMINAL
    kept, pace = last if young else None, pace_of(run)
    return Seen(
        run=run,
        engine=engine,
        state=state_of(run, engine, now),
        now=now,
        counts=kept.counts if kept else reader.lease_counts(run_id),
        outcomes=kept.outcomes if kept else {d: pace.outcome(o) for d, o in reader.lease_outcomes(run_id).items()},
        verdicts=kept.verdicts if kept else [pace.verdict(v) for v in reader.lease_verdicts(run_id)],
        summed_at=kept.summed_at if kept else now,
    )


def head_part(run_id: str, drawn_state: str) -> None:
    """Status, banners, and the numbers of each direction."""
    seen, problem = read(run_id)
    with st.container(key="banners"):
        if problem is not None:
            states.storage_problem(problem, kept_frame=seen is not None)
    if seen is None:
        return
    if seen.state != drawn_state and problem is None:
        st.rerun()
    run = seen.run
    header.status_line(run, seen.state, seen.engine, seen.now, None, deterministic=deterministic(run.job))
    with st.container(key="notices"):
        if seen.engine_silent:
            states.engine_silent(seen.engine, None, seen.now, session.page_clock(), session.data_dir().root)
    numbers(seen)


def numbers(seen: Seen) -> None:
    """A row of cards a direction, with what the guard says; or why there is none."""
    run = seen.run
    told = directions(run.arm, seen.counts, run.guards)
    if not told:
        with st.container(border=True, key="lends_nothing"):
            st.caption(nothing_decided(run.arm, lends=run.arm in BORROWING_ARMS, live=seen.live))
            if seen.live and run.arm != "colocated":
                st.page_link(
                    session.CONTROL_PAGE,
                    label="Change the arm in Control",
                    icon=symbol("tune"),
                    query_params={session.RUN_KEY: run.run_id},
                )
        return
    for direction in told:
        guard = run.guards.get(direction)
        with st.container(key=f"numbers_{direction}", gap="small"):
            state = ":gray-badge[guard: lends]" if guard is None else ":orange-badge[guard: holds it off]"
            st.markdown(f"**{DIRECTION_WORDS[direction]}**{seen.pace.badge} {state}", help=helps_of(*NUMBERS_HELP))
            number_cards(_cards(seen, direction), key=f"lending_numbers:{run.run_id}:{direction}")
            if guard is not None:
                st.warning(f"**The guard switched this direction off** · {literal(guard)}", icon=symbol("shield"))


def _cards(seen: Seen, direction: str) -> list[dict[str, Any]]:
    """The cards of a direction, made once for each counting: their small lines go over every measured lease."""
    slot = f"_lending_cards:{seen.run.run_id}:{direction}"
    kept: tuple[float, list[dict[str, Any]]] | None = st.session_state.get(slot)
    if kept is None or kept[0] != seen.summed_at:
        cards = direction_numbers(
            direction,
            counts=seen.counts[direction],
            outcome=seen.outcomes[direction],
            verdicts=seen.verdicts,
            pace=seen.pace,
        )
        kept = (seen.summed_at, [asdict(card) for card in cards])
        st.session_state[slot] = kept
    return kept[1]


def list_part(run_id: str) -> None:
    """Filters, the list, and the decision that is opened."""
    kept: Seen | None = st.session_state.get(f"_decisions_seen:{run_id}")
    if kept is None:
        return
    if not kept.decided:
        st.caption(nothing_decided(kept.run.arm, lends=kept.run.arm in BORROWING_ARMS, live=kept.live))
        return
    clock = session.page_clock()
    asked, wanted = decision_list.filters(kept.run, clock)
    slot = f"_decisions_listed:{run_id}"
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            number = st.session_state.get(f"_decision:{run_id}")
            place = decision_list.place_of(run_id, asked)
            listed = decision_reading.read(reader, kept.run, wanted, place, number)
        if listed.place != place:
            decision_list.go(run_id, asked, listed.place)
        st.session_state[slot] = listed
    except StorageError as error:
        # of a run that is over nothing else is read, so that the head would not notice
        states.storage_problem(error, kept_frame=slot in st.session_state)
        if slot not in st.session_state:
            return
        listed = st.session_state[slot]
    decision_list.draw(kept.run, asked, listed, clock, live=kept.live)
    decision_list.keep_in_url(run_id)


def charts_part(run_id: str) -> None:
    """Whether the gates were right."""
    seen: Seen | None = st.session_state.get(f"_decisions_seen:{run_id}")
    if seen is None or not seen.decided:
        return
    if not seen.verdicts:
        with st.container(border=True, key="no_verdicts"):
            st.markdown(f"**Predicted and measured gain**{seen.pace.badge}")
            st.caption(
                "No lease has been measured yet: that takes its release, and the end of the step that it worked for."
                if seen.live
                else "No lease of this run was measured, so nothing can be compared."
            )
        return
    left, right = st.columns([4, 5], gap="small")
    clock = session.page_clock()
    stamp = (len(seen.verdicts), seen.verdicts[-1], seen.live, clock)
    with left, st.container(border=True, height="stretch", key="predicted"):
        st.markdown(
            f"**Predicted and measured gain**{seen.pace.badge}",
            help=helps_of("predicted_net_gain", "foretold_gain", "measured_gain"),
        )
        key = f"predicted:{run_id}"
        events = live_chart(
            kept_chart(key, stamp, lambda: predicted_chart(seen.verdicts, seen.summed_at, seen.pace, live=seen.live)),
            key=key,
        )
        if events.click:
            _open(run_id, events.click)
    with right, st.container(border=True, height="stretch", key="over_time"):
        st.markdown(f"**Over the run**{seen.pace.badge}", help=helps_of("regret_sum", "paid_off_recent"))
        key = f"regret:{run_id}"
        live_chart(
            kept_chart(
                key, stamp, lambda: over_time_chart(seen.verdicts, seen.summed_at, clock, seen.pace, live=seen.live)
            ),
            key=key,
        )


def _open(run_id: str, click: dict[str, object]) -> None:
    """The decision behind a mark that was clicked on."""
    lease = click.get("customdata")
    if isinstance(lease, list) and lease:
        lease = lease[0]
    if not isinstance(lease, int):
        return
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            number = decision_reading.about_lease(reader, run_id, lease)
    except StorageError:
        return  # the next refresh of the head says so
    if number is not None:
        decision_list.open_decision(run_id, number)
        st.rerun()


def follow_the_address(run_id: str) -> None:
    """Open the decision that the URL names, once for each that it names."""
    named = (st.query_params.get(decision_reading.DECISION_KEY), st.query_params.get(decision_reading.LEASE_KEY))
    slot = f"_decision_named:{run_id}"
    if named == (None, None) or st.session_state.get(slot) == named:
        return
    st.session_state[slot] = named
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            number, problem = decision_reading.asked_for(reader, run_id, decision=named[0], lease=named[1])
    except StorageError:
        return  # the head of the page says so
    if problem:
        st.warning(literal(problem), icon=symbol("link_off"))
    else:
        st.session_state[f"_decision:{run_id}"] = number


def page() -> None:
    """The whole page, top to bottom."""
    named = session.run_in_url()
    try:
        runs, run, devices = chosen(named)
    except StorageError:
        kept: Seen | None = st.session_state.get(f"_decisions_seen:{named}")
        runs, run, devices = ([kept.run], kept.run, 0) if kept else ([], None, 0)
    seen = read(run.run_id)[0] if run is not None else None
    if run is None or seen is None:
        without_run(named, TITLE, QUESTION)
        return
    st.html(f"<style>{decision_detail.STYLE}</style>")
    header.title_and_picker(TITLE, QUESTION, runs, run, session.page_clock())
    session.look_at(run.run_id)
    interval = detail.refresh_interval_s(devices) if seen.live else None
    every(interval, head_part, run.run_id, seen.state)
    follow_the_address(run.run_id)
    if seen.decided or run.arm in BORROWING_ARMS:
        with st.container(border=True, key="decisions"):
            st.markdown(f"**Every decision**{seen.pace.badge}", help=help_of("decisions_by_outcome"))
            every(interval, list_part, run.run_id)
        every(interval, charts_part, run.run_id)
