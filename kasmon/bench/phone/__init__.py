"""What a person away from the desk waits for: `push`, and `page` of a request; `flood` should delay nothing."""
