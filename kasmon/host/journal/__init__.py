"""What a host writes: the session's log (`session_log`), in order, on disk and without secrets (`redaction`)."""
