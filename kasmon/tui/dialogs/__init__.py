"""Dialogs: their base (`base`), the small ones (`common`), and one module for each large one."""
