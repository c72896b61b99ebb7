"""Which sessions the list shows, and in which order."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.fleet import Fleet, by_attention, difference, totals
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.model.session_state import SessionState
from kasmon.tui.main_view import ListTotals
from kasmon.tui.session_list import order
from kasmon.tui.session_list.layout import GroupKey, SavedFilter
from tests.support.bus.sample_machines import there
from tests.support.sample_fleet import asking, crew, ended, fleet, idle, session, spent, working


def arranged(shown: Fleet, view: order.ListSettings) -> list[order.ListEntry]:
    arranger = order.ListOrder()
    arranger.update(shown, difference(Fleet(), shown))
    return arranger.items(shown, view)


def names(items: list[order.ListEntry]) -> list[str]:
    return [item.session if isinstance(item, order.SessionRow) else f"# {item.key}" for item in items]


def test_the_list_is_in_the_models_order_of_attention_first_those_that_need_a_person() -> None:
    shown = crew()
    assert [session.id for session in by_attention(shown.sessions)] == names(arranged(shown, order.ListSettings()))

    shown = fleet(working("docs"), idle("readme"), ended("ci", 1), asking("fix-auth"))
    assert ["fix-auth", "ci", "readme", "docs"] == names(arranged(shown, order.ListSettings()))


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        (order.SortOrder.NAME, ["a", "b", "c"]),
        (order.SortOrder.AGENT, ["b", "a", "c"]),
        (order.SortOrder.SINCE, ["b", "c", "a"]),
        (order.SortOrder.COST, ["c", "a", "b"]),
        (order.SortOrder.WAVE, ["c", "b", "a"]),
        (order.SortOrder.MACHINE, ["c", "b", "a"]),
    ],
)
def test_the_list_can_be_sorted(sort: order.SortOrder, expected: list[str]) -> None:
    shown = fleet(
        there("gpu-1", spent(idle("a", ago=300, agent="codex"), 10, 0.2)),
        there("build", working("b", ago=10, agent="claude", wave=2)),
        spent(working("c", ago=60, agent="gemini", wave=1), 10, 0.9),
    )

    assert expected == names(arranged(shown, order.ListSettings(sort=sort)))


def test_child_rows_follow_their_parent_and_fold_away() -> None:
    shown = fleet(working("docs"), working("links", parent=SessionId("docs")), idle("readme"))

    assert [("readme", 0, 0), ("docs", 0, 1), ("links", 1, 0)] == [
        (item.session, item.depth, item.children)
        for item in arranged(shown, order.ListSettings())
        if isinstance(item, order.SessionRow)
    ]
    assert ["readme", "docs"] == names(arranged(shown, order.ListSettings(folded=frozenset({"docs"}))))


def test_a_parent_is_placed_where_the_child_that_needs_the_user_would_be() -> None:
    shown = fleet(idle("readme"), working("docs"), asking("links", parent=SessionId("docs")))

    assert ["docs", "links", "readme"] == names(arranged(shown, order.ListSettings()))
    assert ["docs", "links", "readme"] == names(arranged(shown, order.ListSettings(sort=order.SortOrder.NAME)))


def test_a_fold_hides_no_session_that_needs_the_user() -> None:
    """Also not below a row that is folded with it."""
    shown = fleet(
        working("docs", wave=1),
        working("links", parent=SessionId("docs")),
        asking("images", parent=SessionId("links")),
        idle("words", parent=SessionId("links")),
    )

    assert ["docs", "links", "images"] == names(arranged(shown, order.ListSettings(folded=frozenset({"docs"}))))
    by_wave = order.ListSettings(group=GroupKey.WAVE, folded=frozenset({"wave /1"}))
    assert ["# wave /1", "docs", "links", "images"] == names(arranged(shown, by_wave))


def test_what_is_folded_is_folded_to_its_end_and_a_circle_of_parents_loses_no_row() -> None:
    shown = fleet(working("a"), working("b", parent=SessionId("a")), working("c", parent=SessionId("b")))
    assert ["a"] == names(arranged(shown, order.ListSettings(folded=frozenset({"a"}))))

    shown = fleet(working("a", parent=SessionId("b")), working("b", parent=SessionId("a")))
    assert {"a", "b"} == set(names(arranged(shown, order.ListSettings())))


def test_child_rows_are_in_the_wave_of_their_parent() -> None:
    shown = fleet(working("docs", wave=1), idle("links", parent=SessionId("docs")), idle("readme"))

    assert ["# wave /1", "docs", "links", "# wave ", "readme"] == names(
        arranged(shown, order.ListSettings(group=GroupKey.WAVE))
    )


def test_grouping_by_wave_puts_a_heading_above_each_wave() -> None:
    shown = fleet(
        working("one", wave=1, plan="p", peers=2),
        ended("two", wave=1, plan="p", task=1),
        idle("three", wave=2),
        idle("x"),
    )

    items = arranged(shown, order.ListSettings(group=GroupKey.WAVE))

    assert ["# wave /2", "three", "# wave p/1", "one", "two", "# wave ", "x"] == names(items)
    heading = next(item for item in items if isinstance(item, order.ListHeading) and item.wave and item.wave.plan)
    assert heading.wave is not None
    assert (1, 2) == (heading.wave.done, heading.wave.peers)


def test_a_folded_wave_keeps_its_heading() -> None:
    shown = fleet(working("one", wave=1, plan="p"), idle("x"))

    items = arranged(shown, order.ListSettings(group=GroupKey.WAVE, folded=frozenset({"wave p/1"})))

    assert ["# wave p/1", "# wave ", "x"] == names(items)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"docs", "fix-auth", "ci"}),
        ("auth", {"fix-auth"}),
        ("AUTH fix", {"fix-auth"}),
        ("make html", {"docs"}),
        ("asking", {"fix-auth"}),
        ("crash", {"ci"}),
        ("state:asking", {"fix-auth"}),
        ("state:asking,working", {"docs", "fix-auth"}),
        ("state:crashed", {"ci"}),
        ("state:ended", {"ci"}),
        ("wave:2", {"docs"}),
        ("agent:codex state:ended", {"ci"}),
        ("mode:sdk", {"docs", "fix-auth", "ci"}),
        ("machine:gpu-1", {"ci"}),
        ("machine:local", {"docs", "fix-auth"}),
        ("GPU-1", {"ci"}),
        ("state:", {"docs", "fix-auth", "ci"}),
        ("nothing", set()),
        ("http://x", set()),
    ],
)
def test_the_filter_accepts_words_and_fields(text: str, expected: set[str]) -> None:
    shown = fleet(
        working("docs", "make html", wave=2), asking("fix-auth"), there("gpu-1", ended("ci", 1, agent="codex"))
    )

    assert expected == {session.id for session in shown.sessions if order.SessionFilter(text).takes(session)}


def test_the_arranger_follows_a_changing_fleet() -> None:
    arranger = order.ListOrder()
    now = Fleet()
    steps: list[tuple[Session, ...]] = [
        (working("a"), working("b", ago=10)),
        (working("a"), asking("b"), idle("c")),
        (idle("c"), asking("a", ago=1)),
    ]
    for sessions in steps:
        after = fleet(*sessions)
        arranger.update(after, difference(now, after))
        now = after

        assert [session.id for session in by_attention(sessions)] == names(arranger.items(now, order.ListSettings()))


def test_the_arranger_reports_whether_the_order_may_change() -> None:
    arranger = order.ListOrder()
    before = fleet(working("a"), working("b"))
    arranger.update(before, difference(Fleet(), before))
    said = fleet(working("a", "Something new."), working("b"))

    assert not arranger.update(said, difference(before, said))
    asks = fleet(working("a", "Something new."), asking("b"))
    assert arranger.update(asks, difference(said, asks))


def test_incremental_totals_equal_full_ones() -> None:
    tally = ListTotals()
    now = Fleet()
    for after in (crew(), fleet(*crew().sessions[5:], working("new")), fleet(ended("new", 1)), fleet(), crew()):
        change = difference(now, after)
        tally.update(change.changed, change.gone)
        now = after
        kept, counted = tally.totals(), totals(now)

        assert {state: number for state, number in kept.states.items() if number} == dict(counted.states)
        assert (kept.crashed, kept.finished) == (counted.crashed, counted.finished)
        assert (kept.requests, kept.tokens) == (counted.requests, counted.tokens)
        assert kept.cost_usd == pytest.approx(counted.cost_usd)
        assert len(tally) == len(now.sessions)


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        ("tag:api", ["a", "b"]),
        ("tag:API,docs", ["a", "b", "c"]),
        ("tag:none", ["d"]),
        ("urgent", ["b"]),
        ("tag:api urgent", ["b"]),
        ("plan:p1", ["c"]),
        ("plan:none account:work", ["d"]),
        ("account:none", ["a", "b", "c"]),
    ],
)
def test_a_filter_knows_tags_plans_and_accounts(filter_: str, expected: list[str]) -> None:
    shown = fleet(
        idle("a", tags=("api",)),
        idle("b", tags=("api", "urgent")),
        idle("c", tags=("docs",), plan="p1"),
        idle("d", account="Work"),
    )

    assert expected == names(arranged(shown, order.ListSettings(sort=order.SortOrder.NAME, filter=filter_)))


GROUPED = fleet(
    asking("a", tags=("api", "urgent"), workdir="/x", via="gpu-1"),
    working("b", tags=("api",), workdir="/y", plan="p1"),
    idle("c", workdir="/x", account="work"),
    working("child", parent=SessionId("b"), tags=("docs",), workdir="/z"),
)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (GroupKey.TAG, ["# tag api", "a", "b", "child", "# tag urgent", "a", "# tag ", "c"]),
        (GroupKey.FOLDER, ["# folder /x", "a", "c", "# folder /y", "b", "child"]),
        (GroupKey.PLAN, ["# plan p1", "b", "child", "# plan ", "a", "c"]),
        (GroupKey.MACHINE, ["# machine gpu-1", "a", "# machine local", "c", "b", "child"]),
        (GroupKey.ACCOUNT, ["# account work", "c", "# account ", "a", "b", "child"]),
        (GroupKey.NONE, ["a", "c", "b", "child"]),
    ],
)
def test_rows_are_grouped_by_a_value_and_a_session_with_several_has_a_row_for_each(
    group: GroupKey, expected: list[str]
) -> None:
    assert expected == names(arranged(GROUPED, order.ListSettings(group=group)))


def test_a_heading_counts_its_sessions_and_those_that_need_the_user() -> None:
    items = arranged(GROUPED, order.ListSettings(group=GroupKey.FOLDER))

    assert [("/x", 2, 1), ("/y", 2, 0)] == [
        (item.label, item.sessions, item.needing) for item in items if isinstance(item, order.ListHeading)
    ]


def test_a_session_that_starts_to_need_the_user_changes_its_heading_in_any_order() -> None:
    arranger, view = order.ListOrder(), order.ListSettings(sort=order.SortOrder.NAME, group=GroupKey.FOLDER)
    before, after = fleet(working("a", workdir="/x")), fleet(asking("a", workdir="/x"))
    arranger.update(before, difference(Fleet(), before))
    arranger.items(before, view)

    assert arranger.update(after, difference(before, after))
    assert not arranger.update(after, difference(after, fleet(asking("a", workdir="/x", last_line="more"))))


def test_a_folded_group_shows_only_what_needs_the_user_and_without_a_value_there_is_no_heading() -> None:
    folded = frozenset({"folder /x", "folder /y"})
    view = order.ListSettings(group=GroupKey.FOLDER, folded=folded)
    assert ["# folder /x", "a", "# folder /y"] == names(arranged(GROUPED, view))
    assert ("folder /x", "folder /y") == msgspec.structs.replace(view, folded=folded | {"b"}).layout.folded

    assert ["a", "b"] == names(arranged(fleet(idle("a"), idle("b")), order.ListSettings(group=GroupKey.TAG)))


MEMBERS = st.lists(
    st.builds(
        lambda name, state, tags, parent, folder: session(
            name, state, tags=tags, parent=SessionId(parent) if parent else None, workdir=folder
        ),
        st.sampled_from("abcdefgh"),
        st.sampled_from([SessionState.ASKING, SessionState.IDLE, SessionState.WORKING]),
        st.lists(st.sampled_from(["x", "y", "z"]), unique=True).map(lambda tags: tuple(sorted(tags))),
        st.sampled_from(["", *"abcdefgh"]),
        st.sampled_from(["/1", "/2"]),
    ),
    unique_by=lambda each: each.id,
)


@given(
    before=MEMBERS,
    after=MEMBERS,
    group=st.sampled_from(GroupKey),
    sort=st.sampled_from([order.SortOrder.ATTENTION, order.SortOrder.NAME]),
    folded=st.sets(st.sampled_from(["tag x", "folder /1", "a"])),
)
def test_any_grouping_shows_each_session_and_nothing_else(
    before: list[Session], after: list[Session], group: GroupKey, sort: order.SortOrder, folded: set[str]
) -> None:
    """Also after a change: what the update reports as unmoved is the same list as a new one."""
    view = order.ListSettings(sort=sort, group=group, folded=frozenset(folded))
    arranger, first, last = order.ListOrder(), fleet(*before), fleet(*after)
    arranger.update(first, difference(Fleet(), first))
    items = arranger.items(first, view)
    moved = arranger.update(last, difference(first, last))
    fresh = arranged(last, view)

    assert fresh == arranger.items(last, view)
    if not moved and group is not GroupKey.WAVE:
        assert items == fresh
    rows = [item.session for item in fresh if isinstance(item, order.SessionRow)]
    if not folded:
        assert {each.id for each in after} == set(rows)
    assert {each.id for each in after if each.attention <= order.URGENT} <= set(rows) <= {each.id for each in after}
    if group is not GroupKey.TAG:
        assert len(rows) == len(set(rows))


@given(before=MEMBERS, after=MEMBERS)
def test_the_counts_of_saved_filters_are_those_of_their_lists_after_any_change(
    before: list[Session], after: list[Session]
) -> None:
    saved = tuple(SavedFilter(text, text) for text in ("tag:x", "tag:none", "state:asking,idle", "a", ""))
    counts, first, last = order.FilterCounts(), fleet(*before), fleet(*after)
    counts.use(saved, first.sessions)
    change = difference(first, last)
    counts.update(change.changed, change.gone)

    lists = [arranged(last, order.ListSettings(filter=each.text)) for each in saved]
    assert [len(items) for items in lists] == [*counts.counts()]
