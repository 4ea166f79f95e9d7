"""Deliberate faults: kills of the real daemon, and checks of what it had promised."""
