"""What is measured: one folder for each op. Nothing here imports the runner."""
