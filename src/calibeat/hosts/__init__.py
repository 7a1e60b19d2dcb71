"""Hosts: what a user holds. Calibrators, banks of keys, their many-class forms, and what they share."""
