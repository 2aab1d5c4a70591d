"""What a user calls: a module for each op, and what they share."""
