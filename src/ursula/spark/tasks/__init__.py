"""The tasks that the jobs of `ursula.pipeline` run on executors.

They are not next to the jobs because those need the engine and its libraries, and importing any module of
`ursula.pipeline` imports all of the jobs. An executor may have nothing but pyarrow.
"""
