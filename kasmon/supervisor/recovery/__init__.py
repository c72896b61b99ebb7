"""After a crash or a reboot: lost sessions go on with their conversations, each proven before it is opened."""
