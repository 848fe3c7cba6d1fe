"""What the parent does while the worker works: one case or step at a time, asked, judged, recorded."""
