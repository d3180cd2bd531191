"""What the server costs, measured against others on one machine in one run. `make bench` runs it."""
