"""The rules of streams: commands, the state machine and its outcomes.

Pure Python: no I/O, no clock, no randomness. Nothing here imports any other part of Ursula except
`ursula.ranges`, which is just as pure.
"""
