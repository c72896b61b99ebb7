"""The managed sandbox: created, used, paused, resumed, healed and forked. Start with `sandbox`.

`lifecycle` pauses and resumes it, `heal` replaces one that is gone, and `journal` writes each step into the session
log. `checkpoints` stores and restores the workspace, and `fork` copies a snapshot to another session.
"""
