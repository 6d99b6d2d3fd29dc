"""The machine, the process and the installation: memory, devices, progress, documents."""
