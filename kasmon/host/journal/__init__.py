"""What a host writes down: the session's log (`session_log`), in order, on disk and without secrets (`redaction`)."""
