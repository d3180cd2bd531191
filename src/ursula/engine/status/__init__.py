"""What an operator may see: plain values, which could come from another process, and how they are found."""
