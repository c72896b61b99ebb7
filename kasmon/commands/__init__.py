"""What the command line does, one idea a module. `cli/` holds the commands' typed functions, each of which calls one
thing in here; nothing in here knows the library that reads the command line."""
