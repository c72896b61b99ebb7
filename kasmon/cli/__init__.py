"""The command line. Start at `commands.COMMANDS`: it names the function of each command, one typed function a command.

`arguments.parse` reads its arguments from its signature, `app` gives the same functions to cyclopts for help and
errors, `completion` answers the Tab key, and `output/` prints.
"""
