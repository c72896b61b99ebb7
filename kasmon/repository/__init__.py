"""Git: `git` reads the repositories of the user, `own_git` runs it on those of kasmon, `turn_trees` is one of these."""
