"""YAML files into the model, every mistake with its file and line."""
