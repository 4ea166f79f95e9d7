"""The methods of the WsPASM paper: rows of D, a thread a cell."""
