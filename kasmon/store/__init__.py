"""What kasmon stores on disk: append-only event logs, and caches and indexes that can be rebuilt from them.

Start at `event_log.EventLog`. `fleet_index` keeps every session's state and `fleet_cache` stores it, `plan_log` has the
events of a plan, and `search_index` has the text for `kasmon grep`.
"""
