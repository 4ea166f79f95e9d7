"""The command line, a thin layer over the packages that do the work; a module for each command."""
