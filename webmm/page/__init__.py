"""The web page: what it is made of, and serving it."""
