"""Values and pure functions: no I/O, no async, no clock.

Start at `events` (what a log has), `session` (the state that follows from it) and `reducers.apply.apply` (how it
follows). Then `commands` (what a host executes), `fleet`, `plan/` (`plan.scheduler.next_steps`) and `transcript/`.
"""
