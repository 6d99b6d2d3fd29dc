"""From the name of a model to a model in the core: hub, files, architectures, packs."""
