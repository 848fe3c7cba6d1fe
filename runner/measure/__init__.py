"""The stage `measure`: clocks, turns, when to stop, and what samples mean. Much of it is pure."""
