"""A plan drawn as rails."""

from kasmon.model.plan import graph
from kasmon.model.plan.parser import read
from kasmon.model.plan.plan import Plan
from tests.support.sample_plans import plan, task

DIAMOND = plan(task("a", run="a"), task("b", needs=("a",)), task("c", needs=("a",)), task("d", needs=("b", "c")))


def rails(of: Plan) -> list[str]:
    return [line.rails.rstrip() for line in graph.graph(of) if line.task is not None]


def test_a_diamond_opens_and_closes() -> None:
    assert [
        "tidy: 4 tasks in 3 waves",
        "    wave 1",
        "●   1 a  [shell]",
        "│   wave 2",
        "├─● 2 b  [scripted] needs a",
        "● │ 3 c  [scripted] needs a",
        "│ │ wave 3",
        "●─╯ 4 d  [scripted] needs b, c",
    ] == graph.text(DIAMOND)


def test_tasks_that_need_nothing_and_a_chain_are_one_rail() -> None:
    assert ["●", "●", "●"] == rails(plan(task("a"), task("b"), task("c")))
    assert ["●", "●", "●"] == rails(plan(task("a"), task("b", needs=("a",)), task("c", needs=("b",))))


def test_each_line_is_as_wide_as_the_others_with_its_task_and_ascii_on_ascii_terminals() -> None:
    lines = graph.graph(DIAMOND)
    assert 1 == len({len(line.rails) for line in lines})
    assert [None, "a", None, "b", "c", None, "d"] == [line.task and line.task.id for line in lines]
    assert [1, 1, 2, 2, 2, 3, 3] == [line.wave for line in lines]

    assert all(line.isascii() for line in graph.text(DIAMOND, {"a": "done"}, utf8=False))


def test_a_line_shows_agent_state_and_needs() -> None:
    shown = plan(
        task("a", title="make it", run="make", check="true"), task("b", title="b", inherits="a", run="x", agent="zsh")
    )

    assert ["1 a make it  [shell] done has a check", "2 b  [zsh] continues from a"] == [
        graph.label(one, shown, "done" if one.id == "a" else "") for one in shown.tasks
    ]


def test_the_head_counts_and_has_the_plans_words_and_needs_beyond_the_last_rail_are_written() -> None:
    text = "# x\n**Goal:** go\n**Architecture:** one\n## Wave 1\n### Task 1: a"
    assert ["x: 1 task in 1 wave", "goal: go", "architecture: one"] == graph.text(read(text, "x.md"))[:3]

    wide = plan(*(task(f"t{n}") for n in range(40)), *(task(f"u{n}", needs=(f"t{n}",)) for n in range(40)))
    assert max(map(len, rails(wide))) <= 2 * graph.MOST_RAILS + 1
    assert "needs t39" in graph.text(wide)[-1]


def test_every_need_that_has_a_rail_reaches_its_task() -> None:
    """Whatever joins or ends on a line was opened above it: no rail ends in the air."""
    many = plan(
        *(task(str(n), needs=tuple(str(m) for m in range(max(1, n - 3), n) if (n * m) % 3)) for n in range(1, 60))
    )
    open_above: set[int] = set()
    for row in rails(many):
        cells = row[::2]
        assert {index for index, cell in enumerate(cells) if cell in "│┤├┼"} <= open_above
        assert {index for index, cell in enumerate(cells) if cell in "┴╯╰"} <= open_above
        node = cells.index("●")
        open_above = {i for i, cell in enumerate(cells) if cell in "│┤├┼"} | {node}


def markdown(tasks: int) -> str:
    each = tasks // 100
    waves = (
        f"## Wave {w + 1}\n" + "".join(f"### Task {w * each + n + 1}: t\nDo it.\n" for n in range(each))
        for w in range(100)
    )
    return "".join(waves)


def toml(tasks: int) -> str:
    """Each needs the five before it, and the last one all of them."""
    lines = [
        f'[[task]]\nid = "t{n}"\nrun = "x"\nneeds = {[f"t{m}" for m in range(max(0, n - 5), n)]}\n'
        for n in range(tasks - 1)
    ]
    return "".join(lines) + f'[[task]]\nid = "last"\nrun = "x"\nneeds = {[f"t{n}" for n in range(tasks - 1)]}\n'


def test_ten_thousand_tasks_are_read_and_drawn() -> None:
    """How fast is `kasmon bench`'s to say."""
    drawn = graph.text(read(markdown(10_000), "p.md"))

    assert ["p: 10000 tasks in 100 waves", " wave 1"] == [line.replace("  ", " ") for line in drawn[:2]]
    assert 10_101 == len(drawn)


def test_a_task_that_needs_all_others_is_drawn_last_and_a_far_need_is_no_deep_recursion() -> None:
    """Each task needs the one written below it."""
    assert " last " in graph.text(read(toml(1_000), "p.toml"))[-1]
    assert 2 * graph.MOST_RAILS + 2 >= max(len(line.rails) for line in graph.graph(read(toml(1_000), "p.toml")))

    deep = "".join(
        f'[[task]]\nid = "t{n}"\nrun = "x"\nneeds = {[f"t{n + 1}"] if n < 4_999 else []}\n' for n in range(5_000)
    )
    assert 5_000 == read(deep, "p.toml").waves
