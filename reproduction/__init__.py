"""The paper's experiments: streams, runs, figures, and the report that compares them. `python -m reproduction`."""
