"""The methods of the WsPASM paper on the CPU."""
