"""`kasmon demo`: a live fleet of scripted agents in a scratch state folder, which touches no user files.

Start at `run.run`. `scratch` makes the folder and removes it, `cast` has the agents, `populate` starts them, and
`fleet` distributes them over machines, `screenshot` makes the pictures of the documents.
"""
