"""The git repositories of the user. `git` runs git in them without running anything that they configure."""
