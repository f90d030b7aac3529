"""What all rooms may use: output for people, threads, limits of memory, stages."""
