"""Streams to try things on: the flights of the demo, and the drifts of the paper."""
