"""What the jobs of `ursula.pipeline` run on executors.

It is here and not beside the jobs because those need the engine and its libraries, and importing any module
of `ursula.pipeline` imports all of the jobs. An executor may have nothing but pyarrow.
"""
