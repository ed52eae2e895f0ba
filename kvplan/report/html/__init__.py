"""Pages without network: markup that is escaped where it is made, pictures drawn here, one style."""
