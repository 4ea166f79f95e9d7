"""The WsPASM paper's methods on the CPU."""
