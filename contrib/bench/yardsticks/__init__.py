"""Small programs that hbuf is measured against. Each is run by its path, in a process of its own."""
