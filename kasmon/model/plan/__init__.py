"""Plans of tasks: `plan` has the values, `parser` reads both formats, `scheduler.next_steps` decides the next step."""
