"""The host of one agent that speaks a protocol. Start with `host`; `agent_runner` holds the agent.

After a crash, the next host reads the log (`journal.session_log.SessionLog`) and resumes the conversation by its id
(`StructuredHost._next_launch`).
"""
