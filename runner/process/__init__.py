"""Processes and what they say to each other: started, held, asked, bounded in time. No torch."""
