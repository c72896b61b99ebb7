"""Agents and tasks on another machine: the lines that `ssh` (`ssh`) runs there for an agent (`agent`) or a task
(`task`)."""
