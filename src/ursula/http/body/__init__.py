"""Request bodies: read within limits, received into a file, or stored as blobs before they are logged."""
