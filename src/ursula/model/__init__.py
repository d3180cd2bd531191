"""The rules of streams: commands, the state machine and its outcomes.

Pure Python: no I/O, no clock, no randomness, and nothing of ours from outside this folder but
`ursula.ranges`, which is just as pure.
"""
