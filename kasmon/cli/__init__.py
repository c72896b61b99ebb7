"""The command line. `app` reads it by the typed functions in `options/`; each command has a module of its own."""
