"""The methods compared in the PMASM paper, on the CPU."""
