"""How commands are decided and what they change, one module for each kind."""
