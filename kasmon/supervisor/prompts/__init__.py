"""What a person does from the prompt box: pictures (`images`), a `shell_command`, a `fork` at an earlier prompt."""
