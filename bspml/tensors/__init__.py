"""What is checked and computed on any tensor: arguments, rows, precision, kernels."""
