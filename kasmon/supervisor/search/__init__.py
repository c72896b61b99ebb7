"""Full-text search of all sessions (`search`), and the writer of its index (`index_writer`)."""
