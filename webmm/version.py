"""The version of webmm, which every record names; the distribution takes it from here."""

__version__ = "0.1.0"
