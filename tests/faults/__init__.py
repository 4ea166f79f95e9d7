"""Faults on purpose: kills of the real daemon, and who remembers what it had promised."""
