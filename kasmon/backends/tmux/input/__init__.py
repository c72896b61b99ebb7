"""What kasmon types into a pane: prompts (`prompt_delivery`), answers (`answer_delivery`), keys (`pane_writer`)."""
