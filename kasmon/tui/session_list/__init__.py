"""The list of sessions: its table, rows, order, filter and totals. Start with `table`."""
