"""`kasmon task`: what another machine's kasmon runs here for the tasks of its plans."""
