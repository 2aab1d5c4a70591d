"""What `webmm debug` compares the steps of a kernel with: NumPy's values for an element, for each kind of op."""
