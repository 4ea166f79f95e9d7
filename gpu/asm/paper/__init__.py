"""The methods of the WsPASM paper: rows of D, one thread per cell."""
