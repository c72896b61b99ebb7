"""The hosts behind one word: what a package manager or a code forge needs to be of use, and nothing more."""

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
"""By the preset's name. Whoever may reach a forge can also carry things out to it: SECURITY.md says so."""
