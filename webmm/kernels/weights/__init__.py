"""Products of floats with weights of 8 or 4 bits, in blocks."""
