"""Operations on sandboxes: list the available ones, create, use, pause, replay. Start with `sandbox_operations`."""
