"""The plan of the demo: three waves of scripted tasks, for the wave board."""

from typing import Final

from kasmon.model.plan.parser import read
from kasmon.paths import Paths, private_folder, write_private
from kasmon.supervisor.plans import start

FILE: Final = "search.toml"
PLAN: Final = '''\
name = "search"
goal = "Search the shop by more than a product's name"
agent = "scripted"
mode = "sdk"
worktree = "folder"
advance = "auto"
without_check = "ask"
limit = 3

[[task]]
id = "schema"
title = "Agree on the index's schema"
wave = 1
check = "sh check schema"
prompt = """
prompt Agree on the fields of the index; every field that a customer can see belongs in it.
say Every field that a customer can see is in the schema now.
usage 18400 2210 15100 200000 0.14
"""

[[task]]
id = "corpus"
title = "Collect real queries"
wave = 1
check = "sh check corpus"
prompt = """
prompt Collect real queries of last month, without names and addresses.
say 412 queries of last month, without names and addresses.
usage 9100 1040 8800 200000 0.06
"""

[[task]]
id = "index"
title = "Build the index in the background"
wave = 2
check = "sh check index"
prompt = """
prompt Build the index in the background, one shard at a time.
say The first shard is built; the other seven follow.
tool Bash {"command": "make index SHARD=1"} => 48,112 documents in 41 s
usage 30200 3900 26400 200000 0.27
slow 900
say All eight shards are built.
"""

[[task]]
id = "rank"
title = "Rank by what people bought"
wave = 2
needs = ["corpus"]
check = "sh check rank"
prompt = """
prompt Rank products by what people bought after they searched; seven in ten queries should find theirs first.
say Ranking by sales of the last 90 days; the tests run now.
usage 41800 5200 33900 200000 0.39
"""

[[task]]
id = "words"
title = "Fold plurals and typing errors"
wave = 2
needs = ["schema"]
prompt = """
prompt Fold plurals and typing errors, so that "shose" finds shoes.
say Plurals are folded, and one wrong letter is forgiven from five letters on.
usage 12700 1900 10300 200000 0.09
"""

[[task]]
id = "page"
title = "Show results while people type"
wave = 3
needs = ["index", "rank"]
check = "sh check page"
prompt = """
prompt Show the first five results while people type, within a tenth of a second.
say The page shows the first five results within 80 ms.
"""

[[task]]
id = "guide"
title = "Write down how to tune it"
wave = 3
prompt = """
prompt Write down how to tune the search, for those who come after us.
say The guide is written.
"""
'''


CHECKS: Final = """\
test "$1" = rank || exit 0
echo 'FAILED test_rank.py: 0.61 < 0.70 of the queries find their product first'
exit 1
"""
"""The script of the tasks' checks: one of them fails."""


def begin(paths: Paths) -> None:
    """Start the plan in a folder of its own, with a detached runner.

    Raises:
        UnavailableError: if the plan cannot be written, or no process can be started.
    """
    folder = paths.state.parent.parent / "search"
    private_folder(folder)
    write_private(folder / FILE, PLAN.encode())
    write_private(folder / "check", CHECKS.encode())
    start.run(paths, start.store_approved_plan(paths, read(PLAN, FILE), PLAN, folder / FILE, folder, headless=False))
