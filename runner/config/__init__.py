"""The stage `config`: YAML files and the words of a command line become `model.Settings`. No torch."""
