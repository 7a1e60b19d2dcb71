"""Streams of scores and outcomes to replay: real flights, and the drifts of the paper."""
