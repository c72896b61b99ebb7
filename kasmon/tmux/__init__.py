"""tmux access: kasmon's own server, a control client that receives every pane's output, and adopted foreign servers.

Start at `server.TmuxServer` (one command) and `hub.Hub` (all panes through one control client). `control/` runs such a
client and parses its output, `foreign_server` follows a server of the user, and `remote/` another machine's.
"""
