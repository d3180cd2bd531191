"""The state as rows and back: what a flush stores, a start loads, and a new generation begins with."""
