"""The conversations that agents store: lost sessions resume theirs after a crash or a reboot, each verified before it
is opened (`sessions`), and a new session resumes one that the user chooses (`stored_conversations`)."""
