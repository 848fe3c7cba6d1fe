"""The stages `build` and `inputs`: a variant as a callable, and what it is called with."""
