"""What a machine stores on the server of its cluster, and how others read it.

`outbox.Outbox` publishes the directory and the logs of a machine as signed records (`machine_records`);
`kasmon.bus.nats.bus.NatsBus` reads them with `stored_messages`. Start with `machine_records`.
"""
