"""How fast, how large and how soon: `python -m benchmarks` prints it, beside a C loop and other libraries."""
