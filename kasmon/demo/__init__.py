"""`kasmon demo`: a live fleet of scripted agents in a scratch state folder, which touches no user files."""
