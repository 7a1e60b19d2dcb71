"""The algorithms, pure: parts of a method, and the kernels that predict and learn on one row of float64."""
