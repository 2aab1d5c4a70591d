"""What to compute, apart from how: a module for each op."""
