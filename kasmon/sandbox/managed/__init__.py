"""The managed sandbox: created, used, paused, resumed, healed and forked. Start with `sandbox`.

`idle_policy` decides when it is paused or ended, `heal` checks and repairs a resumed one, and `journal` records its
events. `checkpoints` stores and restores the workspace, and copies a snapshot to another session.
"""
