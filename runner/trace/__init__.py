"""What a trace of torch's profiler says: read, grouped, counted. Pure: no torch."""
