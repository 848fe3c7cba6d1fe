"""The process that touches variants: `python -m runner.worker`."""
