"""Operations on sandboxes: which are available, create, use, pause, replay. Start with `operations`."""
