"""Runs: what did past runs lose, and why? A table of every run, what can be done with those chosen, and a comparison.

    address (search, filters, chosen runs) -> read_listing -> filter -> table -> actions -> bench, comparison or losses

The page is drawn again when a run came, went or moved on: a small part of it looks for that, and nothing else ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import streamlit as st

from app import compare_view, header, runs_actions, runs_bench, runs_url, session, states
from app.clock import DASH
from app.compare_rows import named
from app.export_view import import_bundle
from app.glossary import help_of
from app.live_page import every
from app.markup import literal
from app.modelled import EMULATED, LEARNS_NOTHING, is_emulated, pace_of
from app.price import read_price
from app.runs_filter import Offers, Wanted, offers, wanted_runs, words_of
from app.runs_sums import Listing, read_listing, shared, with_marks
from app.runs_table import NOTHING, Listed, table
from app.status import symbol
from storage.database import StorageError, TelemetryMissing
from storage.liveness import is_silent
from storage.reader import TelemetryReader

TITLE, QUESTION = "Runs", "What did past runs lose, and why?"

WATCH_EVERY_S = 3.0
"""How soon the page notices that a run came, went or moved on; a live one is watched on its own page."""

WAITING_EVERY_S = 1.0
"""The same while figures wait to be summed."""

SHOWN_RUNS = 12
"""Bars of lost time while nothing is chosen: what fits without scrolling."""

DOTTED_RUNS = 300
"""Dots of the scatter while nothing is chosen; the newest."""

NAME_PX = 110
"""Of names, which may have any length; a longer one is read in its cell."""

TABLE_PX = 440
FULL_TABLE = 11
"""Runs that a table without scrolling holds."""

FILTERS = ("q", "state", "kind", "arm", "tag", "comparison")
"""Keys of the widgets, and names in the address."""

_LISTING, _GENERATION, _WROTE = "_runs_listing", "_runs_generation", "_runs_wrote"
_DELETED = "_runs_deleted"
"""Runs that were chosen and are deleted, and which others stayed chosen."""


def filters(found: Offers, everything: int) -> Wanted:
    """What is searched for; each widget is bound to its name in the address."""
    with st.container(key="runs_filters"):
        columns = st.columns([4, 2, 2, 2, 2, 3], gap="small", vertical_alignment="bottom")
        with columns[0]:
            query = st.text_input(
                "Search",
                key="q",
                bind="query-params",
                placeholder=f"in {everything:,} runs: name, id, tag, note, who, arm",
                icon=symbol("search"),
                help="Every word must be found, in whatever case.",
            )
        with columns[1]:
            state = _several("State", found.states, "state")
        with columns[2]:
            kind = _several("Kind", found.kinds, "kind")
        with columns[3]:
            arm = _several("Arm", found.arms, "arm")
        with columns[4]:
            tag = _several("Tag", found.tags, "tag")
        comparison = ""
        if found.comparisons:
            with columns[5]:
                comparison = str(
                    st.selectbox(
                        "Comparison",
                        ["", *found.comparisons],
                        # the address has the label, so a label must not change with the runs
                        format_func=lambda name: name or "all runs",
                        key="comparison",
                        bind="query-params",
                    )
                    or ""
                )
    return Wanted(
        words=words_of(str(query or "")),
        states=frozenset(state),
        kinds=frozenset(kind),
        arms=frozenset(arm),
        tags=frozenset(tag),
        comparison=comparison,
    )


def _several(label: str, options: Sequence[str], key: str) -> list[str]:
    chosen = st.multiselect(
        label,
        list(options),
        key=key,
        bind="query-params",
        placeholder="all",
        disabled=not options,
    )
    return [str(value) for value in chosen]


def clear_filters() -> None:
    """Forget every filter; a callback, since a bound widget can only be set before it is drawn."""
    for key in FILTERS:
        st.session_state[key] = "" if key in ("q", "comparison") else []


def runs_table(shown: Sequence[Listed], chosen: runs_url.Chosen) -> None:
    """The table. Its selection is by row, so another set of rows is another table that begins with what is chosen."""
    ids = [each.run.run_id for each in shown]
    if st.session_state.get(_WROTE) != chosen:
        # chosen elsewhere: by the address, a button, or the way back of the browser
        st.session_state[_GENERATION] = st.session_state.get(_GENERATION, 0) + 1
        st.session_state[_WROTE] = chosen
    digest = sha256("\n".join(ids).encode()).hexdigest()[:12]
    key = f"runs_rows:{digest}:{st.session_state[_GENERATION]}"
    emulated = [is_emulated(each.run) for each in shown]
    hidden: dict[str, None] = {}
    if not any(each.run.comparison for each in shown):
        hidden["comparison"] = None
    if all(emulated):
        hidden["reward"] = None
    for name, known in (("tags", any(each.tags for each in shown)), ("note", any(each.note for each in shown))):
        if not known:
            hidden[name] = None
    with st.container(key="runs_table"):
        picked = st.dataframe(
            table(shown, session.page_clock()),
            hide_index=True,
            on_select="rerun",
            selection_mode="multi-row",
            selection_default={"selection": {"rows": [i for i, run_id in enumerate(ids) if run_id in chosen.ids]}},
            key=key,
            placeholder=DASH,
            height="content" if len(shown) <= FULL_TABLE else TABLE_PX,
            column_config={
                "run": st.column_config.TextColumn(pinned=True, width="medium"),
                "name": st.column_config.TextColumn(width=NAME_PX),
                "staleness": st.column_config.NumberColumn(format="%.4g"),
                "steps": st.column_config.NumberColumn(
                    help="Steps behind its weights, those before a resume included."
                ),
                "of": st.column_config.NumberColumn("of", help="Steps that the job asks for."),
                "idle": st.column_config.ProgressColumn(
                    "idle %", min_value=0, max_value=100, format="%.1f", help=help_of("idle_share")
                ),
                "lost device-h": st.column_config.NumberColumn(format="%.3f", help=help_of("lost_hours")),
                "tokens/s": st.column_config.NumberColumn(format="%.0f", help=help_of("tokens_per_s")),
                "reward": st.column_config.LineChartColumn(
                    "reward over steps", y_min=0, y_max=1, help=help_of("reward_over_steps")
                ),
                "tags": st.column_config.ListColumn("tags"),
                **hidden,
            },
        )
    rows = picked["selection"]["rows"]
    now = chosen.shown_as(ids, [ids[i] for i in rows if i < len(ids)])
    if now != chosen:
        st.session_state[_WROTE] = now
        runs_url.write(now)
        st.rerun()


def told_count(listing: Listing, shown: Sequence[Listed], wanted: Wanted) -> None:
    """How many runs are shown of how many, what is still missing, and what emulated figures are."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium", key="runs_count"):
        total = len(listing.runs)
        st.caption(f"{total:,} runs" if wanted.everything else f"{len(shown):,} of {total:,} runs", width="content")
        if not wanted.everything:
            st.button(
                "Clear filters", icon=symbol("filter_alt_off"), type="tertiary", key="clear_filters",
                on_click=clear_filters,
            )  # fmt: skip
        if listing.waiting:
            st.caption(f"{listing.waiting:,} runs are still being summed.", width="content")
        import_bundle()
    if any(is_emulated(each.run) for each in shown):
        st.caption(
            f"{EMULATED} runs: tokens/s and lost device-h are modelled, those of the devices that are stood for. "
            f"{LEARNS_NOTHING}"
        )


def chosen_runs(listing: Listing, shown: Sequence[Listed], chosen: runs_url.Chosen) -> list[Listed]:
    """The chosen runs that are there, the baseline first; says which are not, and which the filters hide."""
    by_id = {each.run.run_id: each for each in listing.runs}
    gone = [run_id for run_id in chosen.ids if run_id not in by_id]
    if deleted := runs_actions.gone_by_delete(gone):
        left = chosen.without(list(deleted))
        st.session_state[_DELETED] = (left.ids, deleted)
        runs_url.write(left)
        st.rerun()
    if gone:
        with st.container(key="runs_gone"):
            named_ids = ", ".join(literal(run_id) for run_id in gone[: states.LISTED_RUNS])
            more = f" and {len(gone) - states.LISTED_RUNS} more" if len(gone) > states.LISTED_RUNS else ""
            st.info(
                f"**Not in this data folder** · {named_ids}{more}. Deleted, or of another folder.",
                icon=symbol("link_off"),
            )
            if st.button("Leave them out", key="runs_leave_out"):
                runs_url.write(chosen.without(gone))
                st.rerun()
    found = [by_id[run_id] for run_id in chosen.ordered if run_id in by_id]
    visible = {each.run.run_id for each in shown}
    if hidden := sum(each.run.run_id not in visible for each in found):
        st.caption(f"{hidden} of the {len(found)} chosen runs hidden by the filters.")
    return found


def told_deleted(chosen: runs_url.Chosen) -> None:
    """That chosen runs are deleted, until something else is chosen: they are in no table any more."""
    left, deleted = st.session_state.get(_DELETED, ((), {}))
    if not deleted:
        return
    if chosen.ids != left:
        del st.session_state[_DELETED]
        return
    by = " and ".join(sorted({literal(command.who) for command in deleted.values()}))
    ids = list(map(literal, deleted))
    more = f" and {len(ids) - states.LISTED_RUNS} more" if len(ids) > states.LISTED_RUNS else ""
    st.success(
        f"**Deleted by {by}** · {', '.join(ids[: states.LISTED_RUNS])}{more}, with telemetry, checkpoints, tags and "
        "notes.",
        icon=symbol("delete"),
    )


def lost(shown: Sequence[Listed]) -> None:
    """What the newest of the shown runs lost, and idle time against staleness, while nothing is compared."""
    measured = [each for each in shown if each.figures is not None and each.figures.idle is not None][:SHOWN_RUNS]
    if not measured:
        return
    left, right = st.columns([5, 3], gap="small")
    with left, st.container(border=True, height="stretch", key="lost_by_run"):
        bars = []
        for each in measured:
            figures, pace = each.figures or NOTHING, pace_of(each.run)
            device_s = None if figures.device_s is None else pace.seconds(figures.device_s)
            bars.append((named(each.run.run_id, emulated=pace.emulated), figures, device_s))
        badge = next((pace_of(each.run).badge for each in measured if is_emulated(each.run)), "")
        compare_view.lost_chart(bars, read_price(session.data_dir()), badge=badge, key="lost_by_run_chart")
    with right, st.container(border=True, height="stretch", key="staleness_by_run"):
        dotted = shown[:DOTTED_RUNS]
        badge = next((pace_of(each.run).badge for each in dotted if is_emulated(each.run)), "")
        compare_view.staleness_chart(dotted, {}, badge=badge, key="staleness_by_run_chart")


def watch(drawn: object, waiting: int) -> None:
    """Draws the page again when a run came, went or moved on, or when figures wait to be summed."""
    if waiting or stamp() != drawn:
        st.rerun()


def stamp() -> object:
    """What the page was drawn from; compared, to notice when that changes."""
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            engine = reader.engine()
            # a run that goes on becomes an interrupted one by the silence of its engine
            silent = is_silent(engine.beat_at if engine else None, session.now())
            return silent, reader.list_stamp()
    except StorageError as error:
        return type(error).__name__, str(error)


def read(drawn: object) -> tuple[Listing | None, StorageError | None]:
    """Every run, or the last good list and why it is not newer. drawn: while it is the same, only tags and notes can be
    others."""
    data = session.data_dir()
    kept: tuple[object, Listing] | None = st.session_state.get(_LISTING)
    if (others := shared().listing) is not None and others[0] == (data.root, drawn):
        kept = others
    try:
        if kept is not None and kept[0] == (data.root, drawn) and not kept[1].waiting:
            listing = with_marks(kept[1], data)
        else:
            listing = read_listing(data, shared(), session.now())
    except StorageError as error:
        return kept[1] if kept else None, error
    st.session_state[_LISTING] = shared().listing = ((data.root, drawn), listing)
    return listing, None


def page() -> None:
    """The whole page."""
    header.title_and_picker(TITLE, QUESTION, [], None, session.page_clock())
    drawn = stamp()
    listing, problem = read(drawn)
    watched = (drawn, listing.waiting if listing else 0)
    every(WAITING_EVERY_S if watched[1] else WATCH_EVERY_S, watch, *watched)
    if isinstance(problem, TelemetryMissing):
        states.no_database(problem)
        return
    if problem is not None:
        states.storage_problem(problem, kept_frame=listing is not None)
    if listing is None:
        return
    if not listing.runs:
        states.no_runs(session.data_dir().root)
        import_bundle()
        return
    if listing.marks_problem is not None:
        st.warning(f"Tags and notes cannot be read: {literal(str(listing.marks_problem))}", icon=symbol("database_off"))
    found = offers(listing.runs)
    wanted = filters(found, len(listing.runs))
    shown = wanted_runs(listing.runs, wanted)
    chosen = runs_url.read()
    runs_url.write(chosen)
    told_count(listing, shown, wanted)
    if shown:
        runs_table(shown, chosen)
    else:
        st.info("No run is like that. Clear a filter, or search for less.", icon=symbol("search_off"))
    selected = chosen_runs(listing, shown, chosen)
    told_deleted(chosen)
    with st.container(border=True, key="run_actions"):
        if selected:
            runs_actions.bar(selected, found.tags)
        else:
            st.caption("Choose a run to open, clone, resume, tag or delete it; choose two or more to compare them.")
    if wanted.comparison:
        runs_bench.card(wanted.comparison)
    if len(selected) > 1:
        compare_view.comparison(selected, chosen, read_price(session.data_dir()))
    else:
        lost(shown)
