"""A live fleet of scripted agents in a scratch state folder: nothing of the user's is touched, nothing is left."""
