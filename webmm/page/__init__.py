"""The web page: building its files, and serving them."""
