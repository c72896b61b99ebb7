"""Finish a session's branch: what is left to do, and dialogs that do it.

`controller.FinishController` opens the screen, plans what a key asks for and has it done: start there.
"""
