"""The command line: one module a command, thin over the packages that do the work."""
