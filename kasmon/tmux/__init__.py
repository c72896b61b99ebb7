"""tmux access: kasmon's own server, a control client that receives every pane's output, and adopted foreign servers."""
