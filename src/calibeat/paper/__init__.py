"""The demo's flights, and the paper's experiments: streams, runs, figures, and the report that compares them."""
