"""The examples that `kasmon plan init` writes: a small plan that `plan check` accepts, in TOML and in Markdown."""

from typing import Final

TOML: Final = '''\
# A plan for kasmon: `kasmon plan check FILE`, then `kasmon plan run FILE`, which shows every command and asks.
# Every key is explained in docs/plans.md. A key behind a `#` is one that you may want.

name = "Example"
goal = "One sentence that every agent of the plan reads."
# agent = "claude"            # who does the tasks that name no agent; else the config's default
# worktree = "own"            # each task on a branch of its own; "shared" is one for all, "folder" is this folder
# limit = 3                   # how many tasks run at once

[[task]]
id = "survey"
title = "Look around"
prompt = """
Look at the files in this folder. Write down in a few sentences what is there, and what a newcomer should read first.
"""
time_limit = "30m"            # "90s", "30m", "2h"

[[task]]
id = "count"
title = "Count the files"
run = "ls -A | wc -l"         # a command for a shell instead of an agent

[[task]]
id = "report"
title = "Write the report"
needs = ["survey", "count"]   # begins when these are done
prompt = """
Read what the tasks before yours found out, and write a report of ten lines.
"""
check = "true"                # a command that ends with 0 where the task is done, e.g. "pytest -q"
check_time_limit = "5m"
retries = 1                   # how often it is tried again after a failure; the next attempt reads what went wrong
'''

MARKDOWN: Final = """\
# Example

**Goal:** One sentence that every agent of the plan reads.

## Wave 1

### Task 1: Look around

Look at the files in this folder. Write down in a few sentences what is there, and what a newcomer should read first.

### Task 2: Find the tests

Find out how the tests of this folder are run, and whether they pass.

## Wave 2

### Task 3: Write the report

**Needs:** 1, 2
**Check:** `true`

Read what the tasks before yours found out, and write a report of ten lines.
"""
