"""`kasmon agents`: the agents that kasmon knows, as folders of data."""
