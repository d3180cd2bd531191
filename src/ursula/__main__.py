"""`python -m ursula` is the `ursula` command."""

from ursula.cli import main

if __name__ == "__main__":
    main()
