"""What the state knows about the store: segments, replaced objects, dirty rows."""
