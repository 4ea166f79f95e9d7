"""The command line, thin over the packages that do the work; one module for each few commands."""
