"""Operations on sessions: create, start, move, stop, export, explain. Start with `session_operations`."""
