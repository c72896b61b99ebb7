"""All sessions at one moment, and as they change. `snapshot` reads them once, `watch` follows them."""
