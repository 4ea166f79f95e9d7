"""The output of commands: rows for users, and files that appear atomically."""
