"""The decision what a command would do: one function per command, which changes nothing.

Each returns an outcome if nothing is to be changed (the command is refused, ignored, or already done), and
otherwise the plan that the function of the same name in `change` needs.
"""
