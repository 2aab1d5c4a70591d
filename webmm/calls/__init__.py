"""The public calls: a module for each op, and the code that they share."""
