"""Evidence of an agent's state in a terminal: screen, output, hooks, processes.

Start with `state_monitor`, which collects it. `kasmon.model.evidence.judge` decides the state.
"""
