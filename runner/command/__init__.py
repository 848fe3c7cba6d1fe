"""What a command line can ask for beside one run: help, lists, many jobs, to be resumed or run elsewhere."""
