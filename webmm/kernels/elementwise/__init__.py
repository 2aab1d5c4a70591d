"""Functions of single elements."""
