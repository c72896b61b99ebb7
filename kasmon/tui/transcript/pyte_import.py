"""pyte, without the tables of widths that it would load: a megabyte, for what `PyteBuffer` never asks of it.

pyte takes one function of `wcwidth`, to draw characters; `PyteBuffer` draws them itself, as wide as Textual does.
Whoever else wants `wcwidth` gets the real one.
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
