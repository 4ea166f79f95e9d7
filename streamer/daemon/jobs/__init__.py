"""Batch jobs: commands on files, each in its own process at low priority."""
