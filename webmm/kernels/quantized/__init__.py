"""Products of 8-bit integers, and of floats with weights of 8 or 4 bits."""
