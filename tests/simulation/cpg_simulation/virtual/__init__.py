"""What a simulated process runs on: clocks, event loops, threads and sockets, all stepped by one real thread."""
