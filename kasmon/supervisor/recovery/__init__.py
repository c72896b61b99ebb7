"""After a crash or a reboot: resume lost sessions in their conversations, each verified before it is opened."""
