"""What limits the start of a plan's next task beside the plan itself: a budget, and the accounts of its agents. Pure.

A plan that names accounts spreads its tasks over them: each attempt gets the account that `AccountSpread` chooses.
"""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from kasmon.model.plan.plan import Plan, Task, agent_of, host_of
from kasmon.model.plan.progress import ACTIVE, PlanRun

UNKNOWN = "it is not in the config"


class AccountUse(msgspec.Struct, frozen=True, kw_only=True):
    """One account of the config, as it is now."""

    agents: frozenset[str] = frozenset()
    used: float | None = None
    """The used share of its fullest limit; None if none was reported since its last reset."""
    problem: str = ""
    """Why it gets no task now: it is at its limit, for example."""


class StartLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What limits the start of further tasks now."""

    held: str = ""
    """Why no task may start: a budget that is used up. Empty if one may."""
    accounts: Mapping[str, AccountUse] = MappingProxyType({})
    """The accounts that the plan names, as far as the config has them."""


class AccountChoice(NamedTuple):
    account: str = ""
    """Empty if none can be chosen, or the task names none for its agent: it uses the agent's own log-in."""
    why: str = ""
    """Why this one; else why not, for each account. Empty if the task names none for its agent."""


NO_LIMITS: Final = StartLimits()
OWN_LOGIN: Final = AccountChoice()


class AccountSpread:
    """Chooses the accounts of the next attempts of *plan*, one after the other, each with regard to those before."""

    def __init__(self, plan: Plan, run: PlanRun, accounts: Mapping[str, AccountUse]) -> None:
        self._plan, self._run, self._accounts = plan, run, accounts
        begun = [(at.began_at, at) for at in run.tasks.values() if at.ran is not None and at.ran.account]
        self._at_work = Counter(at.ran.account for _, at in begun if at.state in ACTIVE and at.ran is not None)
        self._last = max(((at, task.ran.account) for at, task in begun if task.ran is not None), default=(0.0, ""))[1]

    def choose(self, task: Task) -> AccountChoice:
        """Return the account of the next attempt of *task*, which runs here."""
        names = self.find_candidates(task)
        if not names:
            return OWN_LOGIN
        problems = {name: self._accounts[name].problem if name in self._accounts else UNKNOWN for name in names}
        free = [name for name in names if not problems[name]]
        if not free:
            return AccountChoice(why="; ".join(f"account {name!r}: {why}" for name, why in problems.items()))
        if self._plan.spread == "round-robin":
            after = names.index(self._last) + 1 if self._last in names else 0
            chosen = next(name for name in (*names[after:], *names[:after]) if name in free)
            why = "the next in turn"
        else:
            chosen = min(free, key=lambda name: (self._accounts[name].used or 0.0, self._at_work[name]))
            used = self._accounts[chosen].used
            why = "no use of it is known" if used is None else f"{used:.0%} of its fullest limit are used"
        self._at_work[chosen] += 1
        self._last = chosen
        return AccountChoice(chosen, why)

    def find_candidates(self, task: Task) -> list[str]:
        """Return the accounts that *task* names and its agent can use; one that is not in the config counts too."""
        instead = self._run.of(task.id).agent
        agent = agent_of(self._plan, task, instead)
        if task.run or host_of(self._plan, task, instead):
            return []
        for named in (task.accounts, self._plan.accounts):  # a person may have replaced its agent
            own = [name for name in named if name not in self._accounts or agent in self._accounts[name].agents]
            if own:
                return own
        return []
