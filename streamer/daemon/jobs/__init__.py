"""Batch jobs: commands on files, each in a process of its own at low priority."""
