"""The methods that the PMASM paper compares, on the CPU."""
