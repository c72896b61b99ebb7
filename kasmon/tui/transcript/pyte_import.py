"""Import pyte without the width tables of `wcwidth`: they take a megabyte, and `PyteBuffer` never uses them.

pyte uses one function of `wcwidth`, to draw characters; `PyteBuffer` draws them itself, as wide as Textual does. Other
importers of `wcwidth` get the real module.
"""

import sys
from types import ModuleType

from rich.cells import cell_len

__all__ = ["pyte"]

_stands_in = "wcwidth" not in sys.modules
if _stands_in:
    _widths = ModuleType("wcwidth")
    _widths.wcwidth = _widths.wcswidth = cell_len  # type: ignore[attr-defined]  # both: another thread may import now
    sys.modules["wcwidth"] = _widths
try:
    import pyte
finally:
    if _stands_in:
        del sys.modules["wcwidth"]
