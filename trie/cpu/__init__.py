"""How the CPU is used: threads, vectors, machine instructions, interrupts, memory."""
