"""Running plans: the runner, the folders where tasks work, their checks, and the views of plans for readers."""
