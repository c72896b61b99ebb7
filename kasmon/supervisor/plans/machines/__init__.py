"""Tasks of a plan on registered machines.

On the machine where a task works, `kasmon task` runs `offer`, what the machine offers, and `task_work`: that holds a
claim for each task (`claim`), has the repository in a store of kasmon's own (`task_repository`), and runs the check in
a process of its own (`check_process`). The plan's runner asks for that through the link (`registered_tasks`). Start
reading with `task_requests`, the values that both exchange.
"""
