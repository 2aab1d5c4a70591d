"""The version of webmm, which every record names; the distribution takes it from here.

This module is in the translated subset (docs/page.md).
"""

__version__ = "0.1.0"
