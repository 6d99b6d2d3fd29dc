"""Reading and writing files safely: whole files or none, and clear messages about a wrong file."""
