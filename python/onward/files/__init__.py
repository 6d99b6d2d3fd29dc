"""Reading and writing files safely: whole files or none, and clear words for a wrong one."""
