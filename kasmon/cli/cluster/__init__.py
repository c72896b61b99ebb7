"""`kasmon cluster`: a NATS server for the machines of a team, and who may use it."""
