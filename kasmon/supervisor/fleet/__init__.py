"""All sessions: `snapshot` reads them once, `watch` follows their changes."""
