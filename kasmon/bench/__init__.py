"""`kasmon bench`: what kasmon costs, as ratios to a limit that is measured in the same run.

The machine is shared and noisy, so every figure is a median of interleaved rounds, and what is compared is always the
ratio: to bare Python, to a bare Textual app, to a raw `tmux attach`. It reports; it decides nothing.
"""
