"""The routes below /cluster: for operators, and for jobs that read or write the store directly."""
