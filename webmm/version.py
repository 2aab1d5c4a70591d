"""The version of webmm, which every record names and the distribution takes from here, and the project's addresses.

Nothing is released while an address is empty (`tools/check-release`).

This module is in the translated subset (docs/page.md).
"""

__version__ = "0.1.0"
ADDRESS = (
    ""  # of the repository, such as https://github.com/OWNER/webmm; contributions are offered there if it is known
)
SITE = ""  # of the documentation, such as https://OWNER.github.io/webmm/; the live page is in its folder live/
AUTHORS = "The webmm authors"  # as in LICENSE
CONTACT = ""  # an address for mail about the project
