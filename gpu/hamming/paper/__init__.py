"""The methods that the PMASM paper compares: a result table of all windows and patterns."""
