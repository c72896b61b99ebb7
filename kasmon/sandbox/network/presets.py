"""Presets of hosts under one name: the least that a package manager or a code forge needs."""

from typing import Final

PRESETS: Final[dict[str, tuple[str, ...]]] = {
    "npm": ("registry.npmjs.org:443",),
    "pypi": ("pypi.org:443", "files.pythonhosted.org:443"),
    "github": (
        "github.com:443",
        "api.github.com:443",
        "codeload.github.com:443",
        "raw.githubusercontent.com:443",
        "objects.githubusercontent.com:443",
        "release-assets.githubusercontent.com:443",
    ),
}
"""Hosts by preset name. A sandbox that reaches a forge can also upload to it, see SECURITY.md."""
