"""The gateway of a real kasmon: start at `gateway`; it imports the other modules when they are first needed."""
