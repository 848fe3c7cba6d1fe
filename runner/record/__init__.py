"""The stage `record`: what a run writes into its folder as soon as it is known, and how it is read again."""
