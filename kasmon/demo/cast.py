"""The agents of the demo, as data: a dozen in both modes, in every state that is possible without a sandbox."""

from collections.abc import Sequence
from typing import Literal

import msgspec

PLAN = "checkout-v2"


class DemoAgent(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    mode: Literal["sdk", "tmux"]
    script: str = ""
    """Its script, for the scripted agent; empty for a program."""
    argv: tuple[str, ...] = ()
    """The terminal program that runs instead."""
    agent: str = ""
    """The agent that the program counts as; empty for a command."""
    task: int | None = None
    wave: int | None = None
    peers: int | None = None
    parent: str | None = None
    fate: Literal["", "host killed", "never ready"] = ""
    """A forced outcome: its host is killed once it runs, or its start never completes."""


API = """\
prompt Move the cart service to the new shape. Keep the old fields until the callers have moved.
think The cart service still answers in the old shape; I look for who reads it.
tool Read {"path": "services/cart/api.py"} => 214 lines
plan
  [x] Find every reader of the old cart
  [~] Move the handlers to the new shape
  [ ] Remove the old fields
slow 3
say Moving `get_cart` to the new shape. Its three callers follow, one commit each.
tool Bash {"command": "pytest services/cart -q"} => 41 passed in 3.2s
slow 4
tool Edit {"path": "services/cart/api.py"} => 12 lines changed
usage 48210 6120 31400 200000 0.42
loop
"""

BILLING = """\
prompt Make the invoice run idempotent and open a pull request.
say The invoices are idempotent now. Tests pass: **118 of 118**.
tool Bash {"command": "pytest billing -q"} => 118 passed in 9.8s
usage 91400 11830 64200 200000 0.97
ask git push --force-with-lease origin checkout-v2
say Pushed. The pull request is up for review.
"""

WEB = """\
prompt Rework the checkout form so that it works by keyboard alone.
say Rebuilding the checkout form step by step; the screen reader order comes first.
tool Bash {"command": "npm test -- checkout"} => 63 passed
slow 3
say The address step keeps its focus now. On to the payment step.
slow 4
loop
"""

DOCS = """\
prompt Write the upgrade guide for checkout v2.
think Who reads this page? People who upgrade. Begin with what breaks.
tool Write {"path": "docs/upgrade.md"} => 96 lines
say The upgrade guide is written: what breaks, why, and the one command that fixes most of it.
usage 22040 3900 18100 200000 0.19
"""

E2E = """\
prompt Get the end-to-end suite green against the sandbox bank.
say The end-to-end run needs a longer limit on the payment step: the sandbox bank takes 40 s.
usage 37800 4410 29900 200000 0.31
edit e2e/checkout.spec.ts
  @@ -18,7 +18,7 @@ test('pays by card', async ({ page }) => {
     await page.fill('#card', CARD)
  -  await page.click('text=Pay', { timeout: 5_000 })
  +  await page.click('text=Pay', { timeout: 60_000 })
     await expect(page.locator('.receipt')).toBeVisible()
   })
say Changed. I run the suite again.
tool Bash {"command": "npx playwright test checkout"} => 12 passed (1.9m)
"""

PERF = """\
prompt Find out why the price calculation takes 400 ms.
say Profiling the price calculation before I touch it.
tool Bash {"command": "py-spy record -d 30 -o price.svg -- python -m shop.price"} => wrote price.svg
usage 150300 20110 141000 200000 1.61
limit 5400
say Back at work: 70 % of the time is one decimal conversion.
"""

I18N = """\
prompt Collect the new strings of the checkout for translation.
say Collecting the new strings of the checkout: 34 in 9 files.
ask npm run extract -- --overwrite locales/*.json
say Extracted. German and Japanese need a person's eye.
"""

MIGRATE = """\
prompt Backfill the order totals on staging.
say The backfill is ready; a dry run touched 18,204 rows.
usage 64010 7200 40800 200000 0.66
ask psql "$STAGING_URL" -f migrations/0042_backfill_totals.sql
say Backfilled on staging. The numbers agree with the ledger.
"""

DEPS = """\
prompt Close the two open advisories.
say Two advisories are open; one fix needs the vendor's installer.
usage 12400 1810 9020 200000 0.08
ask curl -fsSL https://vendor.example/install.sh | sh -s -- --version 2.4.1
say Installed 2.4.1. Both advisories are closed.
"""

FLAKY = """\
prompt Find out why test_sessions fails once in a hundred runs.
say Running the flaky test two hundred times under load.
tool Bash {"command": "pytest tests/test_sessions.py --count 200"} !> Segmentation fault (core dumped)
crash 139
"""

RESEARCH = """\
prompt Compare three queues under our load.
say Comparing three queues under our load. The first one is done.
slow 600
say Done.
"""

ONBOARDING = """\
boot 900
say Ready.
"""

CAST: tuple[DemoAgent, ...] = (
    DemoAgent(name="billing", mode="sdk", script=BILLING, task=2, wave=1, peers=4),
    DemoAgent(name="e2e", mode="sdk", script=E2E, task=1, wave=2, peers=3),
    DemoAgent(name="migrate", mode="sdk", script=MIGRATE),
    DemoAgent(name="deps", mode="sdk", script=DEPS),
    DemoAgent(name="web", mode="tmux", script=WEB, task=3, wave=1, peers=4),
    DemoAgent(name="i18n", mode="tmux", script=I18N, task=3, wave=2, peers=3),
    DemoAgent(name="flaky-hunt", mode="tmux", script=FLAKY),
    DemoAgent(
        name="web-logs",
        mode="tmux",
        agent="shell",
        argv=("sh", "-c", "echo 'listening on :8080'; exec cat"),
        parent="web",
    ),
    DemoAgent(name="api", mode="sdk", script=API, task=1, wave=1, peers=4),
    DemoAgent(name="perf", mode="sdk", script=PERF, task=2, wave=2, peers=3),
    DemoAgent(name="docs", mode="sdk", script=DOCS, task=4, wave=1, peers=4),
    DemoAgent(name="research", mode="sdk", script=RESEARCH, fate="host killed"),
    DemoAgent(name="onboarding", mode="sdk", script=ONBOARDING, fate="never ready"),
)
"""In start order: agents that need the user's attention come first."""


def extras() -> Sequence[DemoAgent]:
    """Return further agents for a larger demo: alternately working and idle, one in three in a terminal."""
    kinds = (("worker", API), ("writer", DOCS), ("builder", WEB))
    return [
        DemoAgent(name=f"{kinds[n % 3][0]}-{n + 1}", mode="tmux" if n % 3 == 2 else "sdk", script=kinds[n % 3][1])
        for n in range(500)
    ]


def cast(agents: int) -> tuple[DemoAgent, ...]:
    """Return the first *agents* agents and the programs beside them; a child is left out with its parent."""
    chosen: list[DemoAgent] = []
    for part in (*CAST, *extras()):
        if part.script and sum(bool(known.script) for known in chosen) >= agents:
            continue
        chosen.append(part)
    names = {part.name for part in chosen}
    return tuple(part for part in chosen if part.parent is None or part.parent in names)
