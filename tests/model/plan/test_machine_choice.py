"""The choice of a machine for a task."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kasmon.model.plan.machine_choice import AgentOffer, MachineChoice, MachineOffer, MachineUse, choose
from kasmon.model.plan.placement import MachineRequirement

ANY = MachineRequirement()
CLAUDE = (AgentOffer(name="claude", login=True),)


def offer(machine: str, **more: Any) -> MachineOffer:
    return MachineOffer(**{"machine": machine, "slots": 4, "agents": CLAUDE, "memory_mb": 4096, **more})


def chosen(*offers: MachineOffer, wanted: MachineRequirement = ANY, limit: int = 8, **uses: int) -> MachineChoice:
    counted = {name: MachineUse(count, count) for name, count in uses.items()}
    return choose(wanted, "claude", offers, counted, limit)


def test_the_choice_gives_the_reason() -> None:
    best = offer("m", has_repository=True, load=0.25)

    assert MachineChoice("m", "2 of 4 slots free, has the repository, load 0.2, 4.0 GB of memory free") == chosen(
        offer("n", load=0.9), best, m=2
    )


@pytest.mark.parametrize(
    ("more", "wanted", "why"),
    [
        ({"problem": "it did not answer within 10 s"}, ANY, "m: it did not answer within 10 s"),
        ({"labels": ("linux",)}, MachineRequirement("", ("linux", "gpu")), "m: it has no label 'gpu'"),
        ({"agents": ()}, ANY, "m: it has no agent 'claude'"),
        ({"agents": (AgentOffer(name="claude", problem="it is away."),)}, ANY, "m: it is away"),
        ({"agents": (AgentOffer(name="claude", login=False),)}, ANY, "m: its agent 'claude' is not logged in"),
        ({"slots": 1}, ANY, "m: its 1 slot is taken"),
        ({"slots": 0}, ANY, "m: its 0 slots are taken"),
        ({}, MachineRequirement("n"), "no machine 'n' is registered (`kasmon machines`)"),
    ],
)
def test_an_unsuitable_machine_is_not_chosen_and_the_reason_is_given(
    more: dict[str, Any], wanted: MachineRequirement, why: str
) -> None:
    assert MachineChoice("", why) == chosen(offer("m", **more), wanted=wanted, m=1)
    assert chosen(offer("m", agents=(AgentOffer(name="claude"),), labels=("gpu",)), wanted=ANY).machine == "m"


def test_no_more_tasks_of_a_plan_run_on_a_machine_than_its_limit() -> None:
    assert MachineChoice("", "m: 2 tasks of this plan run there") == chosen(offer("m"), limit=2, m=2)
    assert "n" == chosen(offer("m", has_repository=True), offer("n"), limit=2, m=2).machine
    assert MachineChoice("", "m: its 4 slots are taken") == choose(
        ANY, "claude", [offer("m")], {"m": MachineUse(0, 4)}, 2
    )
    assert MachineChoice("", "no machine is registered (`kasmon machines`)") == chosen()


def test_a_machine_that_reports_false_resources_gets_no_more_than_the_plan_allows() -> None:
    liar = offer("m", slots=10**9, load=-1e9, memory_mb=10**9, has_repository=True)
    got = [chosen(liar, offer("n", load=0.9), limit=2, m=used, n=used).machine for used in range(3)]

    assert ["m", "m", ""] == got
    assert "n" == chosen(liar, offer("n", load=0.9), limit=2, m=2).machine
    assert "n" == chosen(msgspec.structs.replace(liar, slots=-5), offer("n", load=0.9)).machine


OFFERS = st.lists(
    st.builds(
        MachineOffer,
        machine=st.sampled_from("abcdef"),
        problem=st.sampled_from(("", "", "", "drained")),
        labels=st.sets(st.sampled_from(("gpu", "linux"))).map(tuple),
        slots=st.integers(0, 3),
        load=st.floats(0, 3),
        memory_mb=st.none() | st.integers(0, 8192),
        agents=st.sampled_from((CLAUDE, CLAUDE, (), (AgentOffer(name="claude", login=False),))),
        has_repository=st.sampled_from((None, True, False)),
    ),
    max_size=6,
    unique_by=lambda each: each.machine,
)
USES = st.dictionaries(st.sampled_from("abcdef"), st.builds(MachineUse, st.integers(0, 2), st.integers(0, 3)))
WANTED = st.sampled_from((ANY, MachineRequirement("a"), MachineRequirement("", ("gpu",))))


@given(OFFERS, USES, WANTED, st.integers(1, 3), st.randoms())
def test_the_choice_fits_and_is_independent_of_order(
    offers: list[MachineOffer], uses: dict[str, MachineUse], wanted: MachineRequirement, limit: int, random: Any
) -> None:
    shuffled = list(offers)
    random.shuffle(shuffled)
    choice = choose(wanted, "claude", offers, uses, limit)
    fitting = {
        each.machine
        for each in offers
        if not each.problem and each.agents == CLAUDE and wanted.machine in ("", each.machine)
        and set(wanted.labels) <= set(each.labels)
        and uses.get(each.machine, MachineUse()).of_plan < limit
        and uses.get(each.machine, MachineUse()).total < each.slots
    }  # fmt: skip

    assert choice == choose(wanted, "claude", shuffled, uses, limit)
    assert choice.machine in (fitting or {""})
    assert choice.why


@given(OFFERS, USES, st.sampled_from(("slots", "load", "memory_mb", "has_repository")))
def test_a_machine_that_improves_stays_chosen(
    offers: list[MachineOffer], uses: dict[str, MachineUse], field: str
) -> None:
    before = choose(ANY, "claude", offers, uses, 3).machine
    better = {"slots": 100, "load": 0.0, "memory_mb": 1 << 20, "has_repository": True}[field]
    changed = [msgspec.structs.replace(each, **{field: better}) if each.machine == before else each for each in offers]

    assert before == choose(ANY, "claude", changed, uses, 3).machine
