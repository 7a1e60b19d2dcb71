"""Logs, read: files and arrays become batches of columns, and batches become chunks of rows that can be trusted."""
