"""The stage `profile`: passes under a profiler in the worker, their tables and their triage in the parent."""
