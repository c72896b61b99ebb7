"""Virtual machines, each with a kernel of its own: their memory can be put on disk, and goes on from there."""
