"""State machines of the clients, without I/O: what came goes in, what it means comes out."""
