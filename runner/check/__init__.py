"""The stage `check`: whether a variant's output is right, and whether it does nothing beside it."""
