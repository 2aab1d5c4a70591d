"""The version of webmm, which every record names and the distribution takes from here, and the project's address.

This module is in the translated subset (docs/page.md).
"""

__version__ = "0.1.0"
ADDRESS = (
    ""  # of the repository, such as https://github.com/OWNER/webmm; contributions are offered there if it is known
)
