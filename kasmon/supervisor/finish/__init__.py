"""Finish the work of a session: commit, update, push, propose, merge, take over, discard its branch.

`finish_plan.plan_finish` says what would be done, `finish.finish` does it: start there. `branch_operations` is git,
`discarded_work` stores what a discarded worktree has nowhere else, `pull_requests` is `gh` and `glab`.
"""
