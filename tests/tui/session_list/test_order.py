"""Which sessions the list shows, and in which order."""

import msgspec
import pytest

from kasmon.model.fleet import Fleet, by_attention, totals
from kasmon.model.permission import SessionId
from kasmon.model.session import Session
from kasmon.tui.main_view import ListTotals
from kasmon.tui.session_list import order
from tests.support.sample_fleet import asking, crew, ended, fleet, idle, spent, working


def arranged(shown: Fleet, view: order.ListSettings) -> list[order.Item]:
    arranger = order.ListOrder()
    arranger.update(shown, order.difference(Fleet(), shown))
    return arranger.items(shown, view)


def names(items: list[order.Item]) -> list[str]:
    return [item.session if isinstance(item, order.SessionRow) else f"# {item.key}" for item in items]


def test_the_list_is_in_the_models_order_of_attention() -> None:
    shown = crew()

    assert [session.id for session in by_attention(shown.sessions)] == names(arranged(shown, order.ListSettings()))


def test_those_that_need_a_person_stand_first() -> None:
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
    ],
)
def test_the_list_can_be_sorted(sort: order.SortOrder, expected: list[str]) -> None:
    shown = fleet(
        spent(idle("a", ago=300, agent="codex"), 10, 0.2),
        working("b", ago=10, agent="claude", wave=2),
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


def test_a_parent_stands_where_the_child_that_needs_a_person_would() -> None:
    shown = fleet(idle("readme"), working("docs"), asking("links", parent=SessionId("docs")))

    assert ["docs", "links", "readme"] == names(arranged(shown, order.ListSettings()))
    assert ["docs", "links", "readme"] == names(arranged(shown, order.ListSettings(sort=order.SortOrder.NAME)))


def test_a_fold_hides_nobody_who_needs_a_person() -> None:
    """Also not below a row that is folded with it."""
    shown = fleet(
        working("docs", wave=1),
        working("links", parent=SessionId("docs")),
        asking("images", parent=SessionId("links")),
        idle("words", parent=SessionId("links")),
    )

    assert ["docs", "links", "images"] == names(arranged(shown, order.ListSettings(folded=frozenset({"docs"}))))
    by_wave = order.ListSettings(by_wave=True, folded=frozenset({"wave /1"}))
    assert ["# wave /1", "docs", "links", "images"] == names(arranged(shown, by_wave))


def test_what_is_folded_is_folded_to_its_end() -> None:
    shown = fleet(working("a"), working("b", parent=SessionId("a")), working("c", parent=SessionId("b")))

    assert ["a"] == names(arranged(shown, order.ListSettings(folded=frozenset({"a"}))))


def test_child_rows_are_in_the_wave_of_their_parent() -> None:
    shown = fleet(working("docs", wave=1), idle("links", parent=SessionId("docs")), idle("readme"))

    assert ["# wave /1", "docs", "links", "# wave ", "readme"] == names(
        arranged(shown, order.ListSettings(by_wave=True))
    )


def test_a_circle_of_parents_loses_no_row() -> None:
    shown = fleet(working("a", parent=SessionId("b")), working("b", parent=SessionId("a")))

    assert {"a", "b"} == set(names(arranged(shown, order.ListSettings())))


def test_grouping_by_wave_puts_a_heading_above_each_wave() -> None:
    shown = fleet(
        working("one", wave=1, plan="p", peers=2),
        ended("two", wave=1, plan="p", task=1),
        idle("three", wave=2),
        idle("x"),
    )

    items = arranged(shown, order.ListSettings(by_wave=True))

    assert ["# wave /2", "three", "# wave p/1", "one", "two", "# wave ", "x"] == names(items)
    heading = next(item for item in items if isinstance(item, order.WaveHeading) and item.wave and item.wave.plan)
    assert heading.wave is not None
    assert (1, 2) == (heading.wave.done, heading.wave.peers)


def test_a_folded_wave_keeps_its_heading() -> None:
    shown = fleet(working("one", wave=1, plan="p"), idle("x"))

    items = arranged(shown, order.ListSettings(by_wave=True, folded=frozenset({"wave p/1"})))

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
        ("state:", {"docs", "fix-auth", "ci"}),
        ("nothing", set()),
        ("http://x", set()),
    ],
)
def test_the_filter_takes_words_and_fields(text: str, expected: set[str]) -> None:
    shown = fleet(working("docs", "make html", wave=2), asking("fix-auth"), ended("ci", 1, agent="codex"))

    assert expected == {session.id for session in shown.sessions if order.SessionFilter(text).takes(session)}


def test_only_what_changed_differs() -> None:
    before = crew()
    changed = msgspec.structs.replace(before.sessions[3], last_line="something else")
    after = fleet(*before.sessions[:3], changed, *before.sessions[4:])

    assert order.ListChange((changed,), ()) == order.difference(before, after)
    assert order.ListChange((), ()) == order.difference(after, after)


def test_an_equal_value_is_no_change() -> None:
    assert order.ListChange((), ()) == order.difference(fleet(working("docs")), fleet(working("docs")))


def test_who_came_and_who_went_is_told() -> None:
    new = idle("new")

    assert order.ListChange((new,), (SessionId("docs"),)) == order.difference(
        fleet(working("docs"), idle("x")), fleet(idle("x"), new)
    )


def test_the_arranger_keeps_up_with_a_fleet_that_changes() -> None:
    arranger = order.ListOrder()
    now = Fleet()
    steps: list[tuple[Session, ...]] = [
        (working("a"), working("b", ago=10)),
        (working("a"), asking("b"), idle("c")),
        (idle("c"), asking("a", ago=1)),
    ]
    for sessions in steps:
        after = fleet(*sessions)
        arranger.update(after, order.difference(now, after))
        now = after

        assert [session.id for session in by_attention(sessions)] == names(arranger.items(now, order.ListSettings()))


def test_the_arranger_tells_whether_the_order_may_be_another() -> None:
    arranger = order.ListOrder()
    before = fleet(working("a"), working("b"))
    arranger.update(before, order.difference(Fleet(), before))
    said = fleet(working("a", "Something new."), working("b"))

    assert not arranger.update(said, order.difference(before, said))
    asks = fleet(working("a", "Something new."), asking("b"))
    assert arranger.update(asks, order.difference(said, asks))


def test_the_totals_that_are_kept_are_those_that_are_counted() -> None:
    tally = ListTotals()
    now = Fleet()
    for after in (crew(), fleet(*crew().sessions[5:], working("new")), fleet(ended("new", 1)), fleet(), crew()):
        change = order.difference(now, after)
        tally.update(change.changed, change.gone)
        now = after
        kept, counted = tally.totals(), totals(now)

        assert {state: number for state, number in kept.states.items() if number} == dict(counted.states)
        assert (kept.crashed, kept.finished) == (counted.crashed, counted.finished)
        assert (kept.requests, kept.tokens) == (counted.requests, counted.tokens)
        assert kept.cost_usd == pytest.approx(counted.cost_usd)
        assert len(tally) == len(now.sessions)
