"""`kasmon bench`: measures the costs of kasmon, as ratios to a limit measured in the same run.

The machine is shared and noisy. So every figure is a median of interleaved rounds, and only ratios are compared: to
bare Python, to a bare Textual app, to a raw `tmux attach`. The bench reports and decides nothing.

Start at `run`; a module of `dashboard/`, `agents/`, `phone/` or `sandboxes/` is one measurement, `support/` has the
stopwatch.
"""
