"""Distances between all pairs of points."""
