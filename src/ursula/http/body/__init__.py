"""Request bodies: read within limits, received into a file, or moved to the store before they are logged."""
